package gitgw

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// What one batch may hold. git-lfs sends a hundred objects at a time.
const (
	lfsObjects    = 200
	lfsBatchBytes = 256 << 10
	lfsReplyBytes = 4 << 20
)

// lfsBatch asks where objects go; the API's names, as far as they are used.
type lfsBatch struct {
	Operation string      `json:"operation"`
	Transfers []string    `json:"transfers,omitempty"`
	Ref       *lfsRef     `json:"ref,omitempty"`
	Objects   []lfsObject `json:"objects"`
	HashAlgo  string      `json:"hash_algo,omitempty"`
}

type lfsRef struct {
	Name string `json:"name"`
}

// lfsObject is an object in a batch, and in its answer.
type lfsObject struct {
	OID           string                `json:"oid"`
	Size          int64                 `json:"size"`
	Authenticated bool                  `json:"authenticated,omitempty"`
	Actions       map[string]*lfsAction `json:"actions,omitempty"`
	Error         *lfsObjectError       `json:"error,omitempty"`
}

type lfsObjectError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// lfsAction is something to be done with an object: where, and with which header.
type lfsAction struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header,omitempty"`
	ExpiresIn int               `json:"expires_in,omitempty"`
}

type lfsAnswer struct {
	Transfer string      `json:"transfer,omitempty"`
	Objects  []lfsObject `json:"objects"`
	HashAlgo string      `json:"hash_algo,omitempty"`
}

// batch judges an upload by the ref that it is for, asks the forge where the objects
// go, and tells the run to bring them here.
func (l *lfsRequest) batch(w http.ResponseWriter, r *http.Request) error {
	started := time.Now()
	var asked lfsBatch
	if err := readLFS(l.body, lfsBatchBytes, &asked); err != nil {
		return &lfsError{http.StatusUnprocessableEntity, CodeLFSMalformed, l.g.notice("malformed Git LFS batch: " + err.Error())}
	}
	grant := &lfsGrant{g: l.g, caller: l.caller, repo: l.up.repo, done: make(chan struct{}), record: Push{
		Time: started, Session: l.caller.Session, Agent: l.caller.Agent, Workspace: l.caller.Workspace, Repository: l.up.repo,
	}}
	handed := false
	defer func() {
		if !handed { // something panicked
			l.g.lfsGrants.unreserve(grant)
		}
	}()
	answer, err := l.grant(r.Context(), &asked, grant)
	handed = true
	if err != nil {
		// The hook fails and git sends nothing more: this is the push's record.
		grant.record.Reason, grant.record.Outcome = l.redact.line(err.Error()), Refused
		if said, ok := errors.AsType[*lfsError](err); ok {
			grant.record.Code = said.code
		}
		if !grant.token.IsZero() || grant.failed {
			grant.record.Outcome = Failed
		}
		grant.finish()
		return err
	}
	if err := l.body.drain(); err != nil {
		grant.record.Outcome, grant.record.Reason = Aborted, l.redact.line(err.Error())
		grant.end()
		return err
	}
	base := "http://" + r.Host + "/" + l.up.repo.String() + ".git/info/lfs/objects/"
	writeLFS(w, http.StatusOK, l.g.lfsGrants.open(grant, answer, base))
	return nil
}

// grant decides, and gets the forge's answer where the decision is yes.
func (l *lfsRequest) grant(ctx context.Context, asked *lfsBatch, grant *lfsGrant) (*lfsAnswer, error) {
	if !l.caller.mayName(l.up.repo) {
		return nil, &lfsError{http.StatusForbidden, CodeForeign, l.g.notice(l.g.foreign(l.up.repo))}
	}
	if l.g.NoLFS {
		return nil, &lfsError{http.StatusForbidden, CodeLFSOff, l.g.policy("Git LFS uploads are not allowed")}
	}
	if err := asked.check(l.limits.LFSBytes); err != nil {
		return nil, &lfsError{http.StatusUnprocessableEntity, codeOf(err, CodeLFSMalformed), l.g.notice(err.Error())}
	}
	v := l.g.judgeLFS(ctx, l.caller, l.up.repo, asked.Ref.Name)
	grant.record.Refs = []PushedRef{{RefVerdict: RefVerdict{
		Ref: asked.Ref.Name, Action: ActionUpdate, Verdict: v.Kind, Rule: v.Rule, Source: v.Source, Reason: v.Reason, Host: v.Host,
	}}}
	switch v.Kind {
	case Allow:
	case Ask:
		// The hook comes before git has said what it will push, so there is no push
		// to ask about; and the objects would be there before the answer.
		return nil, &lfsError{http.StatusForbidden, CodeLFSAsk, l.g.policy(v.Reason + ", and Git LFS objects would arrive before it")}
	default:
		return nil, &lfsError{http.StatusForbidden, CodeRule, l.g.policy(v.Reason)}
	}
	if code, why := v.Conditions.refuseLFS(asked.Objects); why != "" {
		return nil, &lfsError{http.StatusForbidden, code, l.g.policy(why)}
	}
	if len(asked.Objects) == 0 {
		return &lfsAnswer{Transfer: "basic", Objects: []lfsObject{}}, nil
	}
	// Counted before there is a token, so that no crowd of batches gets past the count.
	if err := l.g.lfsGrants.reserve(grant, asked.Objects, l.limits); err != nil {
		return nil, &lfsError{http.StatusTooManyRequests, codeOf(err, CodeLFSBatches), l.g.notice(err.Error())}
	}
	p := &push{g: l.g, caller: l.caller, up: l.up, limits: l.limits}
	token, err := p.mint(ctx)
	if err != nil {
		grant.failed = true
		return nil, &lfsError{http.StatusForbidden, codeOf(err, CodeNoToken), l.g.notice(err.Error())}
	}
	grant.token = token
	grant.revoke = func() error {
		// Long after the request that it was minted for.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.limits.Revoke)
		defer cancel()
		return l.g.Minter.Revoke(ctx, token)
	}
	grant.record.TokenID = token.ID()
	l.redact.know(token)
	answer, err := retrying(ctx, l.limits.Retry, func(error) {}, func() (*lfsAnswer, error) { return l.up.lfsBatch(ctx, asked, token, l.g) })
	if err != nil {
		return nil, &lfsError{http.StatusBadGateway, codeOf(err, CodeLFSForge), l.g.notice("Git LFS: " + err.Error())}
	}
	return answer, nil
}

// judgeLFS judges an upload for ref. Whether the push will create or update it is not
// known yet, and the push itself is judged when it comes: what either may do, the
// objects may.
func (g *Gateway) judgeLFS(ctx context.Context, caller Caller, repo Repo, ref string) Judgement {
	var said []Judgement
	for _, action := range []Action{ActionUpdate, ActionCreate} {
		// An error of the rule source is a denial that says so.
		all, _ := g.Judge(ctx, caller, repo, nil, Update{Ref: ref, Action: action})
		if all[0].Kind == Allow {
			return all[0]
		}
		said = append(said, all[0])
	}
	if said[1].Kind == Ask && said[0].Kind != Ask {
		return said[1]
	}
	return said[0]
}

// refuseLFS says why objects are refused that the ref's rule lets through on conditions.
// Paths are the push's own business: its trees name them.
func (c Conditions) refuseLFS(objects []lfsObject) (Code, string) {
	if c.Secrets && len(objects) > 0 {
		return CodeLFSSecrets, "Git LFS objects are not searched for secrets, and this rule wants that"
	}
	for _, o := range objects {
		if c.MaxPack > 0 && o.Size > c.MaxPack {
			return CodeLFSLarge, "the Git LFS object " + o.OID + " is larger than " + bytesText(c.MaxPack)
		}
	}
	return "", ""
}

// check reports what is wrong with a batch.
func (b *lfsBatch) check(most int64) error {
	switch {
	case b.Operation == "download":
		return &coded{CodeLFSDownload, errors.New("this gateway takes uploads only")}
	case b.Operation != "upload":
		return fmt.Errorf("malformed Git LFS batch: operation %s is not known", quote(b.Operation))
	case b.HashAlgo != "" && b.HashAlgo != "sha256":
		return fmt.Errorf("malformed Git LFS batch: hash %s is not known", quote(b.HashAlgo))
	case b.Ref == nil || b.Ref.Name == "":
		return &coded{CodeLFSNoRef, errors.New("this Git LFS names no ref, by which an upload is judged")}
	case len(b.Objects) > lfsObjects:
		return &coded{CodeLFSMany, fmt.Errorf("more than %d objects in one Git LFS batch", lfsObjects)}
	}
	if err := checkRef(b.Ref.Name); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, o := range b.Objects {
		switch {
		case !lfsOID(o.OID):
			return fmt.Errorf("malformed Git LFS batch: %s is no object id", quote(o.OID))
		case seen[o.OID]:
			return fmt.Errorf("malformed Git LFS batch: %s stands twice in it", o.OID)
		case o.Size < 0:
			return fmt.Errorf("malformed Git LFS batch: %s has no size", o.OID)
		case o.Size > most:
			return &coded{CodeLFSLarge, fmt.Errorf("the Git LFS object %s is larger than %d bytes", o.OID, most)}
		}
		seen[o.OID] = true
	}
	return nil
}

// lfsOID reports whether text is a SHA-256 in lower-case hex.
func lfsOID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// lfsBatch asks the forge. Only what was judged goes there, encoded anew.
func (u *upstream) lfsBatch(ctx context.Context, asked *lfsBatch, t Token, g *Gateway) (*lfsAnswer, error) {
	plain := lfsBatch{Operation: "upload", Transfers: []string{"basic"}, Ref: asked.Ref, HashAlgo: asked.HashAlgo}
	sizes := map[string]int64{}
	for _, o := range asked.Objects {
		plain.Objects = append(plain.Objects, lfsObject{OID: o.OID, Size: o.Size})
		sizes[o.OID] = o.Size
	}
	body, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := u.request(ctx, http.MethodPost, u.forge.repoURL(u.repo, "info", "lfs", "objects", "batch"), bytes.NewReader(body), t)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", lfsType)
	req.Header.Set("Accept", lfsType)
	resp, err := u.lfsDo(u.rt, req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var answer lfsAnswer
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err := readLFS(resp.Body, lfsReplyBytes, &answer); err != nil || kind != lfsType || answer.Transfer != "" && answer.Transfer != "basic" {
		return nil, &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: "but not as a Git LFS server"}
	}
	for _, o := range answer.Objects {
		size, ours := sizes[o.OID]
		if !ours || o.Size != size {
			return nil, &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: "about Git LFS objects that it was not asked about"}
		}
		for name, a := range o.Actions {
			if err := u.checkAction(a, g, t); err != nil {
				return nil, &upstreamError{
					host: u.forge.Host, status: resp.StatusCode, text: "with a Git LFS action " + quote(name) + ": " + err.Error(),
					err: &coded{CodeLFSAddress, err},
				}
			}
		}
		delete(sizes, o.OID) // once each
	}
	return &answer, nil
}

// lfsDo sends a request once, follows no redirect, and takes any 2xx for an answer.
func (u *upstream) lfsDo(rt http.RoundTripper, req *http.Request) (*http.Response, error) {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		if cause := context.Cause(req.Context()); cause != nil {
			err = errors.Join(err, cause)
		}
		return nil, &upstreamError{host: u.forge.Host, err: err}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var said struct {
		Message string `json:"message"`
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(data, &said) != nil {
		said.Message = ""
	}
	return nil, &upstreamError{host: u.forge.Host, status: resp.StatusCode, text: said.Message}
}
