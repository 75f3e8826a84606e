package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"postern/launcher/spec"
)

// overlay is the layout of a host that gives each agent of a conversation a folder of its
// own, beside what they share, and the spec that it makes of it.
func overlay(w *world) (fields, map[string]string) {
	at := map[string]string{}
	for name, file := range map[string]string{
		"cwd":         "space/overlays/agent-a/work.txt",
		"sibling":     "space/overlays/agent-b/secret.txt",
		"config":      "space/agents/a/config.json",
		"repos":       "space/conversations/c1/repos/app/main.go",
		"attachments": "space/attachments/brief.pdf",
		"other":       "space/conversations/c2/repos/app/main.go",
		"checkout":    "src/storefront/main.go", // the user's own, out of every mount
		"nested":      "space/conversations/c1/repos/registered/main.go",
	} {
		at[name] = filepath.Dir(w.write(file, name+"\n", 0o644))
	}
	at["repos"] = filepath.Dir(at["repos"]) // all of the conversation's
	return fields{
		"bindMounts": []fields{
			{"hostPath": at["cwd"]},
			{"hostPath": at["config"], "readOnly": true},
			{"hostPath": at["repos"]},
			{"hostPath": at["attachments"], "readOnly": true},
		},
		"guestWorkdir":   at["cwd"],
		"protectedPaths": []string{at["checkout"], at["nested"]},
	}, at
}

// sees asks from inside which folders can be read and written.
const sees = `for name; do
	r=no; w=no
	ls "$name"/* >/dev/null 2>&1 && cat "$name"/* >/dev/null 2>&1 && r=read
	( : > "$name/made-inside" ) 2>/dev/null && w=write
	echo "$r $w"
done; pwd`

// SPEC 127, 128, 130: up to four mounts, each with its own rights; nobody else's folder;
// registered checkouts never written, whether a mount holds them or not.
func TestDispatchOverlay(t *testing.T) {
	for _, mode := range []spec.Mode{spec.Chat, spec.Review, spec.Plan, spec.Orchestrate} {
		t.Run(string(mode), func(t *testing.T) {
			w := newWorld(t)
			newAppliance(t, w.runs)
			over, at := overlay(w)
			over["mode"] = mode
			rw := map[bool]string{true: "read write", false: "read no"}[mode == spec.Chat]
			app := filepath.Join(at["repos"], "app")
			h := w.host(over, nil, "/bin/sh", "-c", sees, "sh",
				at["cwd"], at["config"], app, at["attachments"], at["nested"], at["checkout"], at["sibling"], at["other"])
			want := strings.Join([]string{rw, "read no", rw, "read no", "read no", "no no", "no no", "no no", at["cwd"], ""}, "\n")
			if got := h.said(spec.Stdout); got != want {
				t.Errorf("got\n%swant\n%s%s", got, want, h.stderr)
			}
			for name, dir := range at {
				_, err := os.Stat(filepath.Join(dir, "made-inside"))
				if made := err == nil; made != (mode == spec.Chat && name == "cwd") && name != "repos" {
					t.Errorf("%s: made on the host: %t", name, made)
				}
			}
		})
	}
	w := newWorld(t)
	newAppliance(t, w.runs)
	over, at := overlay(w)
	h := w.host(over, nil, "/bin/sh", "-c", `mv "$1" "$1.away" || echo stays; mv "$2" "$2.away" || echo stays; ls "$3"`, "sh", at["nested"], filepath.Dir(at["nested"]), filepath.Dir(at["cwd"]))
	if got := h.said(spec.Stdout); got != "stays\nstays\nagent-a\n" {
		t.Errorf("%q\n%s", got, h.said(spec.Stderr))
	}
}

// The mounts that are there only sometimes: a conversation without repositories, a space
// without attachments. A folder that a spec names and that is not there is refused.
func TestDispatchWithoutOptionalMounts(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	over, at := overlay(w)
	over["bindMounts"] = []fields{{"hostPath": at["cwd"]}, {"hostPath": at["config"], "readOnly": true}}
	h := w.host(over, nil, "/bin/sh", "-c", sees, "sh", at["cwd"], at["config"], at["repos"], at["attachments"])
	if got, want := h.said(spec.Stdout), "read write\nread no\nno no\nno no\n"+at["cwd"]+"\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	over["bindMounts"] = []fields{{"hostPath": at["cwd"]}, {"hostPath": at["cwd"] + "/gone"}}
	if h := w.sh(over, "true"); h.code != exitRefused || !strings.Contains(h.last(t).Handle.Error, "[bind_missing]") {
		t.Errorf("%d %s", h.code, h.stderr)
	}
}

// SPEC 129: a host's own shell gets the folder it works in, and nothing beside it.
func TestDispatchHarnessShell(t *testing.T) {
	w := newWorld(t)
	newAppliance(t, w.runs)
	_, at := overlay(w)
	over := fields{"bindMounts": []fields{{"hostPath": at["cwd"]}}, "guestWorkdir": at["cwd"], "protectedPaths": []string{at["checkout"]}}
	h := w.host(over, nil, "/bin/sh", "-c", sees, "sh", at["cwd"], at["config"], at["repos"], at["attachments"], at["sibling"], at["checkout"])
	if got, want := h.said(spec.Stdout), "read write\n"+strings.Repeat("no no\n", 5)+at["cwd"]+"\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
