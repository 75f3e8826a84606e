package gitgw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// upload streams one object to where the forge wants it. The last of its bytes go only
// when the object is what its id says.
func (l *lfsRequest) upload(w http.ResponseWriter, r *http.Request) error {
	h, err := l.g.lfsGrants.begin(l.caller, l.to, false)
	if err != nil {
		return &lfsError{http.StatusNotFound, CodeLFSHandle, l.g.notice("Git LFS: " + err.Error())}
	}
	ok := false
	defer func() { l.g.lfsGrants.finish(h, false, ok) }()
	l.redact.know(h.grant.token)
	if r.ContentLength >= 0 && r.ContentLength != h.size && r.Header.Get("Content-Encoding") == "" {
		return &lfsError{http.StatusUnprocessableEntity, CodeLFSContent, l.g.notice(fmt.Sprintf("Git LFS: %s has %d bytes, and %d come", h.oid, h.size, r.ContentLength))}
	}
	total, cancel := l.limits.within(r.Context())
	defer cancel()
	ctx, dog, rest := newWatchdog(total, l.limits.Upstream)
	defer rest()
	object := &lfsReader{from: l.body, oid: h.oid, left: h.size, sum: sha256.New(), touch: dog.touch}
	resp, err := l.act(ctx, http.MethodPut, h.upload, object, h.size, "application/octet-stream")
	l.body.stop()
	if bad := object.failed(err == nil); bad != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return &lfsError{http.StatusUnprocessableEntity, CodeLFSContent, l.g.notice("Git LFS: " + bad.Error())}
	}
	if errors.Is(err, errTooLong) {
		return &lfsError{http.StatusRequestTimeout, CodeTooLong, l.g.notice("Git LFS: " + l.limits.tookLong("the upload"))}
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // gives the connection back
	if err := l.body.drain(); err != nil {
		return err
	}
	ok = true
	w.WriteHeader(http.StatusOK)
	return nil
}

// verify tells the forge that an object has been uploaded.
func (l *lfsRequest) verify(w http.ResponseWriter, r *http.Request) error {
	h, err := l.g.lfsGrants.begin(l.caller, l.to, true)
	if err != nil {
		return &lfsError{http.StatusNotFound, CodeLFSHandle, l.g.notice("Git LFS: " + err.Error())}
	}
	ok := false
	defer func() { l.g.lfsGrants.finish(h, true, ok) }()
	l.redact.know(h.grant.token)
	// What the client says is read and not passed on: it can say only one thing.
	if err := l.body.drain(); err != nil {
		return err
	}
	body, err := json.Marshal(lfsObject{OID: h.oid, Size: h.size})
	if err != nil {
		return fmt.Errorf("encode verification: %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	resp, err := l.act(ctx, http.MethodPost, h.verify, bytes.NewReader(body), int64(len(body)), lfsType)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	ok = true
	writeLFS(w, http.StatusOK, struct{}{})
	return nil
}

// act does what the forge asked for: its address and its header, which hold the
// credential, and nothing of the client's.
func (l *lfsRequest) act(ctx context.Context, method string, a *lfsAction, body io.Reader, size int64, kind string) (*http.Response, error) {
	at, err := url.Parse(a.Href)
	if err != nil {
		return nil, errors.New("the forge gave no address")
	}
	if size == 0 {
		body = http.NoBody
	}
	req, err := l.up.request(ctx, method, at, body, Token{})
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Accept", lfsType)
	for name, value := range a.Header {
		req.Header.Set(name, value)
		// It may be a credential of any shape, and storage that refuses it may quote it.
		for word := range strings.FieldsSeq(value) {
			l.redact.know(NewToken(word, time.Time{}))
		}
	}
	// Storage is often another host than the forge, and the reason is its own.
	rt := l.up.rt
	if !l.up.forge.owns(at) && !l.up.forge.below(at) {
		rt = l.g.storage()
	}
	return l.up.lfsDo(rt, req)
}

// lfsReader reads an object of a known size and checks what it reads. Of one that is
// too short, too long or another the last piece is kept back, so that whoever is sent
// it never has a whole body.
type lfsReader struct {
	from  *clientBody
	oid   string
	touch func()

	mu   sync.Mutex // the transport may still read when its answer is here
	left int64
	sum  hash.Hash
	bad  error
}

func (o *lfsReader) Read(p []byte) (int, error) {
	o.touch()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bad != nil {
		return 0, o.bad
	}
	if o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.from.Read(p[:min(int64(len(p)), o.left)])
	o.sum.Write(p[:n])
	o.left -= int64(n)
	switch {
	case o.left > 0 && errors.Is(err, io.EOF):
		o.bad = fmt.Errorf("%s ends %d bytes too early", o.oid, o.left)
	case o.left > 0:
		return n, err
	default:
		o.bad = o.whole()
	}
	if o.bad != nil {
		return 0, o.bad
	}
	return n, nil
}

// whole checks an object of which every byte is here.
func (o *lfsReader) whole() error {
	if more, err := o.from.peek(1); len(more) > 0 {
		return fmt.Errorf("%s is longer than it says", o.oid)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s does not end: %w", o.oid, err)
	}
	if got := hex.EncodeToString(o.sum.Sum(nil)); got != o.oid {
		return fmt.Errorf("what comes for %s is %s", o.oid, got)
	}
	return nil
}

// failed is what is wrong with the object; taken says that the forge has answered that
// it has it. One without a byte was never read.
func (o *lfsReader) failed(taken bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.bad != nil:
		return o.bad
	case o.left > 0 && taken:
		o.bad = fmt.Errorf("the forge answered before it had %s", o.oid)
	case o.left == 0:
		if got := hex.EncodeToString(o.sum.Sum(nil)); got != o.oid {
			o.bad = fmt.Errorf("what comes for %s is %s", o.oid, got)
		}
	}
	return o.bad
}
