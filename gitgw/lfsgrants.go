package gitgw

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// lfsPerRun is how many batches of one run may be open.
const lfsPerRun = 16

// lfsTaken is what the open batches of one run take.
type lfsTaken struct {
	batches, objects int
	bytes            int64
}

// lfsGrants are the uploads that runs were allowed and have not made yet. They live in
// memory alone: what a restart forgets is asked for again. The zero value is ready to
// use.
type lfsGrants struct {
	mu      sync.Mutex
	handles map[string]*lfsHandle
	perRun  map[string]*lfsTaken
	closing chan struct{}
	closed  bool
	keepers sync.WaitGroup
}

// lfsGrant is one batch and its token, from the answer to the last upload.
type lfsGrant struct {
	g      *Gateway
	caller Caller
	repo   Repo
	token  Token
	revoke func() error // the token, which is called once; nil without one
	failed bool         // for want of a token
	taken  lfsTaken     // of its run's room
	record Push

	// The rest is under the store's mu.
	handles []string
	left    int // uploads to be made
	users   int // uploads under way
	over    bool
	done    chan struct{} // closed with over
	idle    *time.Timer
	release func()
	objects int
	made    int
	bytes   int64
}

// lfsHandle is the right to upload one object, once.
type lfsHandle struct {
	grant          *lfsGrant
	oid            string
	size           int64
	upload, verify *lfsAction
	busy, uploaded bool
	finished       bool
}

// reserve counts a batch among its run's, until the grant is finished, or says why it
// may not have another.
func (s *lfsGrants) reserve(grant *lfsGrant, objects []lfsObject, limits Limits) error {
	want := lfsTaken{batches: 1, objects: len(objects)}
	for _, o := range objects {
		if want.bytes += o.Size; want.bytes < 0 || want.bytes > limits.LFSRunBytes {
			return &coded{CodeLFSRoom, fmt.Errorf("the Git LFS objects of one push have more than %s", bytesText(limits.LFSRunBytes))}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.perRun[grant.caller.Session]
	if has == nil {
		has = &lfsTaken{}
	}
	switch {
	case s.closed:
		return &coded{CodeLFSBatches, errors.New("the gateway is being closed")}
	case has.batches >= lfsPerRun:
		return &coded{CodeLFSBatches, errors.New("too many Git LFS uploads of this run are under way already")}
	case has.objects+want.objects > limits.LFSRunObjects:
		return &coded{CodeLFSRoom, fmt.Errorf("more than %d Git LFS objects of this run would be under way", limits.LFSRunObjects)}
	case has.bytes+want.bytes > limits.LFSRunBytes:
		return &coded{CodeLFSRoom, fmt.Errorf("more than %s of Git LFS objects of this run would be under way", bytesText(limits.LFSRunBytes))}
	}
	if s.perRun == nil {
		s.perRun = map[string]*lfsTaken{}
	}
	has.batches++
	has.objects += want.objects
	has.bytes += want.bytes
	s.perRun[grant.caller.Session], grant.taken = has, want
	return nil
}

// unreserve gives back what reserve took.
func (s *lfsGrants) unreserve(grant *lfsGrant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.perRun[grant.caller.Session]
	if has == nil || grant.taken.batches == 0 {
		return
	}
	has.batches -= grant.taken.batches
	has.objects -= grant.taken.objects
	has.bytes -= grant.taken.bytes
	grant.taken = lfsTaken{}
	if has.batches == 0 {
		delete(s.perRun, grant.caller.Session)
	}
}

// open makes a handle for each object that the forge wants, and the answer for the run:
// the same objects, with addresses that begin with base and no header.
func (s *lfsGrants) open(grant *lfsGrant, answer *lfsAnswer, base string) *lfsAnswer {
	limits := grant.g.Limits.withDefaults()
	told := &lfsAnswer{Transfer: "basic", Objects: []lfsObject{}, HashAlgo: answer.HashAlgo}
	release, held := grant.caller.hold()
	s.mu.Lock()
	grant.release = release
	grant.record.Outcome = Accepted
	for _, o := range answer.Objects {
		plain := lfsObject{OID: o.OID, Size: o.Size, Authenticated: true}
		if o.Error != nil {
			plain.Error = &lfsObjectError{o.Error.Code, RedactLine(o.Error.Message, grant.token)}
		}
		upload := o.Actions["upload"]
		if upload == nil || plain.Error != nil {
			// The forge has it, or does not want it.
			told.Objects = append(told.Objects, plain)
			continue
		}
		name := newHandle()
		h := &lfsHandle{grant: grant, oid: o.OID, size: o.Size, upload: upload, verify: o.Actions["verify"]}
		if s.handles == nil {
			s.handles = map[string]*lfsHandle{}
		}
		s.handles[name] = h
		grant.handles = append(grant.handles, name)
		grant.left++
		life := int(limits.LFSIdle / time.Second)
		plain.Actions = map[string]*lfsAction{"upload": {Href: base + o.OID + "?handle=" + name, ExpiresIn: life}}
		if h.verify != nil {
			plain.Actions["verify"] = &lfsAction{Href: base + o.OID + "/verify?handle=" + name, ExpiresIn: life}
		}
		told.Objects = append(told.Objects, plain)
	}
	grant.objects = grant.left
	if s.closing == nil {
		s.closing = make(chan struct{})
	}
	closing, stillborn := s.closing, grant.left == 0 || s.closed || !held
	if !stillborn {
		grant.idle = time.AfterFunc(limits.LFSIdle, grant.end)
		s.keepers.Add(1)
	}
	s.mu.Unlock()
	if stillborn {
		// Nothing is to be uploaded, or it is too late: the token ends here.
		grant.end()
		return told
	}
	go func() {
		defer s.keepers.Done()
		select {
		case <-grant.caller.Ended:
		case <-closing:
		case <-grant.done:
		}
		grant.end()
	}()
	return told
}

func newHandle() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// begin takes a handle for one request. It is the caller's, for this repository and
// this object, or it is not there.
func (s *lfsGrants) begin(caller Caller, to route, verify bool) (*lfsHandle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[to.handle]
	switch {
	case h == nil || h.grant.caller.Session != caller.Session || h.grant.caller.Ended != caller.Ended || h.grant.repo != to.repo || h.oid != to.object || h.finished || verify && h.verify == nil:
		return nil, fmt.Errorf("this upload is not open any more: push again")
	case h.busy:
		return nil, fmt.Errorf("this object is being uploaded already")
	case verify && !h.uploaded:
		return nil, fmt.Errorf("this object has not been uploaded")
	}
	h.busy = true
	h.grant.users++
	h.grant.idle.Stop() // an upload may take its time
	return h, nil
}

// finish gives a handle back. What was done is not done again.
func (s *lfsGrants) finish(h *lfsHandle, verify, ok bool) {
	grant := h.grant
	s.mu.Lock()
	h.busy = false
	grant.users--
	switch {
	case !ok:
	case !verify && !h.uploaded:
		h.uploaded = true
		grant.made++
		grant.bytes += h.size
		h.finished = h.verify == nil
	case verify:
		h.finished = true
	}
	if ok && h.finished {
		grant.left--
	}
	complete := grant.left == 0
	if !complete && !grant.over && grant.users == 0 {
		grant.idle.Reset(grant.g.Limits.withDefaults().LFSIdle)
	}
	last := grant.over && grant.users == 0
	s.mu.Unlock()
	switch {
	case complete && !last:
		grant.end()
	case last:
		grant.finish()
	}
}

// end closes every handle of a grant. Its token is revoked here, or by the last upload
// that is under way.
func (grant *lfsGrant) end() {
	s := &grant.g.lfsGrants
	s.mu.Lock()
	if grant.over {
		s.mu.Unlock()
		return
	}
	grant.over = true
	close(grant.done)
	if grant.idle != nil {
		grant.idle.Stop()
	}
	for _, name := range grant.handles {
		delete(s.handles, name)
	}
	idle := grant.users == 0
	s.mu.Unlock()
	if idle {
		grant.finish()
	}
}

// finish revokes the token and writes the record. It is called once.
func (grant *lfsGrant) finish() {
	defer grant.g.lfsGrants.unreserve(grant)
	if grant.revoke != nil {
		if err := grant.revoke(); err != nil {
			grant.g.log().Warn("push token was not revoked", append(attrs(grant.caller, grant.repo, err), slog.String("token_id", grant.token.ID()))...)
		} else {
			grant.record.Revoked = true
		}
	}
	if grant.record.Outcome == Accepted {
		if grant.made < grant.objects {
			grant.record.Outcome = Aborted
		}
		grant.record.Reason = fmt.Sprintf("Git LFS: %d of %d objects uploaded", grant.made, grant.objects)
		grant.record.PackBytes = grant.bytes
	}
	grant.record.Duration = time.Since(grant.record.Time)
	// A batch of nothing, or of what the forge had, is no push: that comes next.
	if grant.record.Outcome != Accepted || grant.objects > 0 {
		grant.g.recorded(grant.record)
	}
	if grant.release != nil {
		grant.release()
	}
}

// close ends every grant. Uploads under way go on and revoke their tokens.
func (s *lfsGrants) close() {
	s.mu.Lock()
	if !s.closed && s.closing != nil {
		close(s.closing)
	}
	s.closed = true
	s.mu.Unlock()
	s.keepers.Wait()
}
