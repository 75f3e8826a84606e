package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// step is one command of the run, and what its output must hold.
type step struct {
	title string
	argv  []string
	want  []string
	exit  int
	after func(*world) error
}

func steps(w *world) []step {
	return []step{
		{
			title: "A request to an allowed host passes",
			argv:  []string{"curl", "-sS", "-w", `HTTP %{http_code}\n`, "http://" + w.partner + "/hello"},
			want:  []string{"hello from the allowed host", "HTTP 200"},
		},
		{
			title: "A request to any other host is refused, with the rule and the cure",
			argv:  []string{"curl", "-sS", "-w", `HTTP %{http_code}\n`, "http://evil.example/"},
			want:  []string{"HTTP 403", "evil.example", "do not retry another way"},
		},
		{
			title: "A request past the proxies finds no network at all",
			argv:  []string{"curl", "-sS", "--noproxy", "*", "--max-time", "5", "http://" + w.originAddr + "/hello"},
			want:  []string{"curl: (7)"},
			exit:  7,
		},
		{
			title: "A push to an agent branch lands",
			// The traces say all that git sends and receives: a token would show.
			argv:  []string{"sh", "-c", `env >env.txt; GIT_TRACE_CURL=$PWD/trace.txt git push origin HEAD:refs/heads/agent/x`},
			want:  []string{"* [new branch]", "agent/x"},
			after: landed,
		},
		{
			title: "A push to main is refused, in git's own words",
			argv:  []string{"git", "push", "origin", "main"},
			want:  []string{" ! [remote rejected] main -> main (Control Center policy: "},
			exit:  1,
			after: mainUntouched,
		},
	}
}

func (s step) run(ctx context.Context, w *world) error {
	fmt.Printf("\n== %s\n$ postern run --repo %s -- %s\n", s.title, repository, strings.Join(quoted(s.argv), " "))
	out, exit, err := w.inSandbox(ctx, s.argv)
	if err != nil {
		return err
	}
	fmt.Print(indent(out))
	if exit != s.exit {
		return fmt.Errorf("ended with %d, want %d", exit, s.exit)
	}
	for _, want := range s.want {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the output does not say %q", want)
		}
	}
	if s.after != nil {
		return s.after(w)
	}
	return nil
}

func quoted(argv []string) []string {
	out := slices.Clone(argv)
	for i, a := range out {
		if strings.ContainsAny(a, " *;>$%") {
			out[i] = "'" + a + "'"
		}
	}
	return out
}

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// landed asks the server itself what the push did, and its ledger with what.
func landed(w *world) error {
	refs, err := w.forge.Refs(forgeRepo)
	if err != nil {
		return err
	}
	if refs["refs/heads/agent/x"] != w.commit {
		return fmt.Errorf("the server has agent/x at %q, want %s", refs["refs/heads/agent/x"], w.commit)
	}
	tokens := w.forge.WriteTokens()
	if len(tokens) != 1 || !tokens[0].Revoked() || tokens[0].Uses == 0 {
		return fmt.Errorf("want one write token, used and revoked; got %d", len(tokens))
	}
	fmt.Printf("  (on the server: agent/x is %.12s; one write token was minted for %s, used, and revoked)\n",
		w.commit, strings.Join(tokens[0].Repositories, ", "))
	return nil
}

func mainUntouched(w *world) error {
	refs, err := w.forge.Refs(forgeRepo)
	if err != nil {
		return err
	}
	if refs["refs/heads/main"] != w.base {
		return fmt.Errorf("main moved to %s", refs["refs/heads/main"])
	}
	if n := len(w.forge.WriteTokens()); n != 1 {
		return fmt.Errorf("%d write tokens exist after a refused push, want the first one alone", n)
	}
	fmt.Println("  (on the server: main did not move, and no token was minted for this push)")
	return nil
}
