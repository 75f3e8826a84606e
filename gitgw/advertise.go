package gitgw

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// offered is what the gateway's own receive-pack speaks. Everything a client
// may need to be refused in git's words is offered; push-cert never, since a
// certificate signs commands that the gateway encodes anew.
func offered(objectFormat string) Capabilities {
	return Capabilities{
		ReportStatus: true, ReportStatusV2: true, DeleteRefs: true, SideBand64k: true,
		Quiet: true, Atomic: true, OFSDelta: true, PushOptions: true,
		ObjectFormat: objectFormat, Agent: "postern",
	}
}

// offer is what is offered for pushes to repo. Rules about content need packs that
// can be read by themselves.
func (g *Gateway) offer(repo Repo, objectFormat string) Capabilities {
	caps := offered(objectFormat)
	caps.NoThin = g.Rules.readsContent(repo)
	return caps
}

// hidden reports whether a ref is left out of the advertisement. refs/pull is
// the forge's own: a mirror push would try to delete it.
func hidden(ref string) bool { return strings.HasPrefix(ref, "refs/pull/") }

// advertisement is a version 0 ref listing, read line by line.
type advertisement struct {
	scan         *pktline.Scanner
	capabilities Capabilities
	first        []byte // the first ref's line, before it is handed out
	empty        bool   // no ref at all
}

// openAdvertisement reads up to the capabilities.
func openAdvertisement(r io.Reader, service string) (*advertisement, error) {
	ad := &advertisement{scan: pktline.NewScanner(bufio.NewReaderSize(r, 32<<10))}
	if !ad.scan.Scan() || string(bytes.TrimSuffix(ad.scan.Bytes(), []byte("\n"))) != "# service="+service {
		return nil, errors.New("not an advertisement")
	}
	if !ad.scan.Scan() || len(ad.scan.Bytes()) > 0 || !ad.scan.Scan() {
		return nil, errors.New("the advertisement is cut short")
	}
	line := ad.scan.Bytes()
	// git 2.39 sends no line at all for a repository without refs, other servers
	// one of zeros.
	if len(line) == 0 {
		ad.empty = true
		return ad, nil
	}
	ref, caps, ok := bytes.Cut(line, []byte{0})
	if !ok {
		return nil, errors.New("the advertisement carries no capabilities")
	}
	var err error
	ad.capabilities, err = parseCapabilities(string(bytes.TrimSuffix(caps, []byte("\n"))))
	if err != nil {
		return nil, fmt.Errorf("read advertisement: %w", err)
	}
	// The scanner's buffer is used again by the next line.
	ad.first = bytes.Clone(ref)
	return ad, nil
}

// next returns the next `OLD SP REF` of a real ref: no peeled tags, no HEAD, no
// shallow lines. It returns io.EOF after the closing flush and only then.
func (ad *advertisement) next() (string, error) {
	for {
		line := ad.first
		ad.first = nil
		if line == nil {
			if ad.empty {
				return "", io.EOF
			}
			if !ad.scan.Scan() {
				return "", errors.New("the advertisement is cut short")
			}
			if line = ad.scan.Bytes(); len(line) == 0 {
				return "", io.EOF
			}
		}
		// HEAD and peeled tags belong to fetches; receive-pack lists neither.
		id, ref, ok := strings.Cut(string(bytes.TrimSuffix(line, []byte("\n"))), " ")
		if ok && validID(id) && strings.HasPrefix(ref, "refs/") && !strings.HasSuffix(ref, "^{}") && !strings.ContainsRune(ref, 0) {
			return id + " " + ref, nil
		}
	}
}

// advertise answers info/refs for a push. It lists what upload-pack lists, so a
// token that can read is enough: a push that will be refused, and a push of
// nothing, never cause a write token to exist. The `.have` lines of forks are
// lost that way; packs may be larger for it, never wrong.
func (g *Gateway) advertise(w http.ResponseWriter, r *http.Request, caller Caller, up *upstream) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	// A client that does not take the listing holds neither it nor its token.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * time.Minute))
	resp, used, err := g.list(ctx, caller, up)
	defer func() {
		e, ok := errors.AsType[*upstreamError](err)
		used.release(ok && e.status == http.StatusUnauthorized)
	}()
	if err != nil {
		g.refuseRefs(w, r, caller, up.repo, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	ad, err := openAdvertisement(resp.Body, "git-upload-pack")
	if err != nil {
		g.refuseRefs(w, r, caller, up.repo, &upstreamError{host: up.forge.Host, status: resp.StatusCode, text: err.Error()})
		return
	}
	format := ad.capabilities.format()
	if ad.empty {
		if format, err = up.objectFormat(ctx, used.token); err != nil {
			g.refuseRefs(w, r, caller, up.repo, err)
			return
		}
	}
	h := w.Header()
	h.Set("Content-Type", "application/x-git-receive-pack-advertisement")
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	if err := writeAdvertisement(w, ad, g.offer(up.repo, format)); err != nil {
		// Half a listing must not look like a whole one: git would try to create
		// what it did not see.
		g.log().Warn("advertisement broke off", attrs(caller, up.repo, err)...)
		panic(http.ErrAbortHandler)
	}
}

// writeAdvertisement lists ad as receive-pack would, with caps on the first
// line or, without any ref, on the line of zeros that stands for none.
func writeAdvertisement(w io.Writer, ad *advertisement, caps Capabilities) error {
	out := bufio.NewWriterSize(w, 32<<10)
	enc := pktline.NewEncoder(out)
	if err := enc.EncodeString("# service=git-receive-pack\n", pktline.FlushString); err != nil {
		return fmt.Errorf("write advertisement: %w", err)
	}
	// The capabilities ride on whichever line comes first.
	tail := "\x00" + caps.String()
	for {
		line, err := ad.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read advertisement: %w", err)
		}
		if _, ref, _ := strings.Cut(line, " "); hidden(ref) {
			continue
		}
		if err := enc.EncodeString(line + tail + "\n"); err != nil {
			return fmt.Errorf("write advertisement: %w", err)
		}
		tail = ""
	}
	// No line went out: an empty repository, or one with hidden refs only. git
	// needs a line of zeros, in the length of the repository's hash.
	if tail != "" {
		zero := strings.Repeat("0", 40)
		if caps.format() == "sha256" {
			zero = strings.Repeat("0", 64)
		}
		if err := enc.EncodeString(zero + " capabilities^{}" + tail + "\n"); err != nil {
			return fmt.Errorf("write advertisement: %w", err)
		}
	}
	if err := enc.Flush(); err != nil {
		return fmt.Errorf("write advertisement: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write advertisement: %w", err)
	}
	return nil
}
