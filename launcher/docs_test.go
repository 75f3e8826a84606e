package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"postern/launcher/nameguard"
	"postern/launcher/spec"
)

// What docs/launcher.md calls complete is: every setting, and every word of a refusal.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../docs/launcher.md")
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for _, key := range known {
		if !strings.Contains(doc, "\n"+key+": ") {
			t.Errorf("docs/launcher.md does not show the setting %s", key)
		}
	}
	// So is what tools act on, and where a rule about names can stand.
	for _, name := range slices.Concat(nameguard.Top(), nameguard.Git(), []string{
		nameguard.SourceDefault, nameguard.SourceGuard, nameguard.SourceKept, nameguard.SourceProtected, nameguard.SourceHidden, nameguard.SourceFree, nameguard.SourceMount,
	}) {
		if name = strings.TrimPrefix(name, ".claude/"); !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/launcher.md does not name %s", name)
		}
	}
	word := regexp.MustCompile(`(?m)\b[rR]eason\w*\s+(?:sandbox\.)?Reason\s*=\s*"(\w+)"`)
	found := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range word.FindAllStringSubmatch(string(source), -1) {
			found++
			if !strings.Contains(doc, "`"+m[1]+"`") {
				t.Errorf("docs/launcher.md does not name the reason %s of %s", m[1], path)
			}
		}
		return err
	})
	if err != nil || found < 40 {
		t.Errorf("found %d reasons, %v", found, err)
	}
	// The spec that is shown is one, with the defaults that are said to be.
	hosts, err := os.ReadFile("../docs/exec.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(hosts), "```json\n")
	shown, _, _ := strings.Cut(rest, "```")
	full, err := spec.Decode(strings.NewReader(shown))
	if err != nil {
		t.Fatal(err)
	}
	least, err := spec.Decode(strings.NewReader(`{"sessionId": "s", "workspaceId": "w", "bindMounts": []}`))
	if err != nil || full.Mode != least.Mode || full.NetworkEnabled != least.NetworkEnabled || len(full.BindMounts) != 2 {
		t.Errorf("%+v and %+v, %v", full, least, err)
	}
	// The settings that are shown are settings.
	_, block, _ := strings.Cut(doc, "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	if _, err := settingsOf(t, block); err != nil || block == "" {
		t.Errorf("the settings that are shown: %v", err)
	}
}
