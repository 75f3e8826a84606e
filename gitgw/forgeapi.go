package gitgw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"postern/gitgw/pack"
)

// maxAnswer bounds what is read of one answer of a forge's API.
const maxAnswer = 8 << 20

// maxCalls is how many questions about one push a forge is asked.
const maxCalls = 64

// forgeReader asks the forge's API about one repository, with a token that can read
// and nothing else: the run's own, or one minted as for a listing of refs.
type forgeReader struct {
	p     *push
	ctx   context.Context //nolint:containedctx // of this one push
	calls int
	own   Token
	used  look
	has   bool
	trees map[string]treeAnswer
}

func (p *push) reader(ctx context.Context) *forgeReader {
	return &forgeReader{p: p, ctx: ctx, used: look{release: func(bool) {}}, trees: map[string]treeAnswer{}}
}

func (f *forgeReader) close() { f.used.release(false) }

// token finds the token to ask with; spoilt is told when the forge does not take it.
func (f *forgeReader) token(refused bool) Token {
	if !f.has && !refused && f.p.caller.ReadToken != nil {
		if own, ok := f.p.caller.ReadToken(f.ctx, f.p.up.repo); ok && !own.IsZero() {
			f.own, f.has = own, true
		}
	}
	if f.has && !refused {
		if !f.own.IsZero() {
			return f.own
		}
		return f.used.token
	}
	f.has, f.own = true, Token{}
	f.used.release(refused)
	f.used = f.p.g.looks.borrow(f.ctx, f.p.g, f.p.caller, f.p.up.repo)
	return f.used.token
}

// get asks for one document below the repository's address.
func (f *forgeReader) get(into any, query string, path ...string) error {
	return f.p.apart(f.ctx, func() error { return f.fetch(into, query, path...) })
}

func (f *forgeReader) fetch(into any, query string, path ...string) error {
	if f.calls++; f.calls > maxCalls {
		return fmt.Errorf("it takes more than %d questions to %s", maxCalls, f.p.up.forge.Host)
	}
	at := f.p.up.forge.API.JoinPath("repos", f.p.up.repo.Owner(), f.p.up.repo.Name())
	at = at.JoinPath(path...)
	at.RawQuery = query
	ctx, cancel := context.WithTimeout(f.ctx, 30*time.Second)
	defer cancel()
	token := f.token(false)
	own := !f.own.IsZero()
	_, err := retrying(ctx, f.used.pauses, func(error) {}, func() (struct{}, error) {
		return struct{}{}, f.p.up.document(ctx, at, token, into)
	})
	if e, ok := errors.AsType[*upstreamError](err); ok && own && e.status == http.StatusUnauthorized {
		// A run that is older than its token must still be able to push.
		token = f.token(true)
		_, err = retrying(ctx, f.used.pauses, func(error) {}, func() (struct{}, error) {
			return struct{}{}, f.p.up.document(ctx, at, token, into)
		})
	}
	return err
}

// document fetches JSON of the API.
func (u *upstream) document(ctx context.Context, at *url.URL, t Token, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("prepare request to %s: %w", u.forge.Host, err)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept", "application/vnd.github+json")
	if !t.IsZero() {
		req.Header.Set("Authorization", "Bearer "+t.Value())
	}
	resp, err := u.rt.RoundTrip(req)
	if err != nil {
		return &upstreamError{host: u.forge.Host, err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return &upstreamError{host: u.forge.Host, status: resp.StatusCode}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(into); err != nil {
		return &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: "with something that is no answer"}
	}
	return nil
}

// descends reports whether the commit id is old or comes after it.
func (f *forgeReader) descends(id, old string) (bool, error) {
	var answer struct {
		Status string `json:"status"`
	}
	// One commit of the second page: neither the list nor the files are wanted.
	if err := f.get(&answer, "per_page=1&page=2", "compare", old+"..."+id); err != nil {
		if e, ok := errors.AsType[*upstreamError](err); ok && e.status == http.StatusNotFound {
			return false, fmt.Errorf("%s does not know both commits", f.p.up.forge.Host)
		}
		return false, err
	}
	switch answer.Status {
	case "ahead", "identical":
		return true, nil
	case "behind", "diverged":
		return false, nil
	}
	return false, fmt.Errorf("%s compares as %s", f.p.up.forge.Host, quote(answer.Status))
}

// mergeBase is where the history of a commit leaves that of base, "" where the two
// have nothing in common or the forge does not know both.
func (f *forgeReader) mergeBase(base, id string) (string, error) {
	var answer struct {
		MergeBase struct {
			SHA string `json:"sha"`
		} `json:"merge_base_commit"`
	}
	err := f.get(&answer, "per_page=1&page=2", "compare", base+"..."+id)
	if e, ok := errors.AsType[*upstreamError](err); ok && e.status == http.StatusNotFound {
		return "", nil
	}
	if err == nil && !validID(answer.MergeBase.SHA) {
		err = fmt.Errorf("%s compares and does not say from where", f.p.up.forge.Host)
	}
	return answer.MergeBase.SHA, err
}

// treeAnswer is one tree as the forge knows it.
type treeAnswer struct {
	id      string
	entries map[string]pack.Entry
}

// tree fetches the tree that an id or a name stands for: a tree's, or a commit's root.
func (f *forgeReader) tree(name string) (treeAnswer, error) {
	if known, ok := f.trees[name]; ok {
		return known, nil
	}
	var answer struct {
		SHA       string `json:"sha"`
		Truncated bool   `json:"truncated"`
		Tree      []struct {
			Path string `json:"path"`
			Mode string `json:"mode"`
			SHA  string `json:"sha"`
		} `json:"tree"`
	}
	if err := f.get(&answer, "", "git", "trees", name); err != nil {
		return treeAnswer{}, err
	}
	if answer.Truncated || !validID(answer.SHA) {
		return treeAnswer{}, fmt.Errorf("%s does not list the whole of a tree", f.p.up.forge.Host)
	}
	t := treeAnswer{id: answer.SHA, entries: make(map[string]pack.Entry, len(answer.Tree))}
	for _, e := range answer.Tree {
		t.entries[e.Path] = pack.Entry{Name: e.Path, Mode: strings.TrimLeft(e.Mode, "0"), ID: e.SHA}
	}
	f.trees[name] = t
	return t, nil
}
