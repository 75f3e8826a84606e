package gitgw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// HeadError is a push that is refused for its form.
type HeadError struct {
	// Reason is one line for git's output.
	Reason string
	// Head is what had been read before the error, so that the refusal can be a
	// report in the shape the client asked for.
	Head *Head
	// Refs are the names to report on: those of Head and, where it can be
	// printed, the one that was refused.
	Refs []string
}

func (e *HeadError) Error() string { return "malformed push: " + e.Reason }

// ReadHead reads the head of a push with the default [Limits]. It reads exactly
// the head: the next byte of r is the first of the pack, so r should be
// buffered. The error is a *HeadError when the bytes are at fault, and wraps
// the reader's own error otherwise.
func ReadHead(r io.Reader) (*Head, error) { return readHead(r, Limits{}.withDefaults()) }

func readHead(r io.Reader, limits Limits) (*Head, error) {
	// The limit is on what is read, not on what is kept: a packet that is cut by
	// it is never parsed.
	src := &sourceErr{r: r}
	limited := &io.LimitedReader{R: src, N: limits.HeadBytes}
	p := &headParser{scan: pktline.NewScanner(limited), head: &Head{}, seen: map[string]bool{}, limits: limits}
	err := p.commands()
	if err == nil && p.head.Capabilities.PushOptions && !p.head.Empty() {
		err = p.options()
	}
	switch {
	case err == nil:
		return p.head, nil
	case src.err != nil:
		return nil, fmt.Errorf("read push: %w", src.err)
	case limited.N <= 0:
		err = fmt.Errorf("the command list is larger than %d bytes", limits.HeadBytes)
	}
	// git shows a refusal beside each ref that is named in the report; those that
	// are not named read "remote failed to report status".
	refs := make([]string, 0, len(p.head.Updates)+1)
	for _, u := range p.head.Updates {
		refs = append(refs, u.Ref)
	}
	if echoable(p.refused) && !p.seen[p.refused] {
		refs = append(refs, p.refused)
	}
	return nil, &HeadError{Reason: err.Error(), Head: p.head, Refs: refs}
}

// sourceErr remembers a reader's real failure, so that a dead connection is not
// taken for malformed bytes.
type sourceErr struct {
	r   io.Reader
	err error
}

func (s *sourceErr) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

type headParser struct {
	scan    *pktline.Scanner
	head    *Head
	seen    map[string]bool
	refused string // the name in the command that was refused, if it had one
	limits  Limits
}

// next returns the next packet's payload, nil at a flush. The framing is
// go-git's: exact reads, lengths 0001 to 0004 and above fff4 refused.
func (p *headParser) next() ([]byte, error) {
	if p.scan.Scan() {
		if line := p.scan.Bytes(); len(line) > 0 {
			return line, nil
		}
		return nil, nil
	}
	err := p.scan.Err()
	var line *pktline.ErrorLine
	switch {
	case errors.As(err, &line):
		return nil, errors.New("an ERR line where commands belong")
	case errors.Is(err, pktline.ErrInvalidPktLen):
		return nil, errors.New("malformed packet length")
	}
	// A stream that ends here may have been cut; git would wait for the flush.
	return nil, errors.New("the request ends before its flush")
}

// commands reads shallow lines and commands up to the flush.
func (p *headParser) commands() error {
	for {
		line, err := p.next()
		if err != nil {
			return err
		}
		if line == nil {
			// Only now is it sure that the capabilities have been seen.
			return p.checkFormat()
		}
		switch {
		case bytes.HasPrefix(line, []byte("shallow ")):
			err = p.shallow(line)
		case bytes.HasPrefix(line, []byte("push-cert")):
			// Never offered. Its commands are read by other rules than ours.
			err = errors.New("signed pushes are not accepted here")
			_, caps, _ := bytes.Cut(line, []byte{0})
			p.head.Capabilities, _ = parseCapabilities(string(caps))
		default:
			err = p.command(line)
		}
		if err != nil {
			return err
		}
	}
}

func (p *headParser) shallow(line []byte) error {
	// git takes them anywhere; in one place they cannot hide among commands.
	if len(p.head.Updates) > 0 {
		return errors.New("a shallow line after the commands")
	}
	if len(p.head.Shallow) >= p.limits.ShallowLines {
		return fmt.Errorf("more than %d shallow lines", p.limits.ShallowLines)
	}
	id := string(bytes.TrimSuffix(line[len("shallow "):], []byte("\n")))
	if !validID(id) {
		return fmt.Errorf("shallow line with a malformed id %s", quote(id))
	}
	p.head.Shallow = append(p.head.Shallow, id)
	return nil
}

// command reads `OLD SP NEW SP REF`, on the first command followed by NUL and
// the capabilities. A second NUL anywhere is refused: git's receive-pack ends
// the name there while other readers do not, so that a rule for refs/heads/main
// would miss "refs/heads/main NUL x".
func (p *headParser) command(line []byte) error {
	n := len(p.head.Updates) + 1
	// One LF, as git itself drops; a second one would be part of the name.
	text := string(bytes.TrimSuffix(line, []byte("\n")))
	if n == 1 {
		// The capabilities are read before the command is judged, so that its
		// refusal can have the shape that the client asked for.
		command, caps, ok := strings.Cut(text, "\x00")
		var err error
		if p.head.Capabilities, err = parseCapabilities(caps); err == nil && !ok {
			err = errors.New("the first command carries no capabilities")
		}
		text = command
		if err != nil {
			p.nameRefused(text)
			return err
		}
	}
	// The limit comes before the parsing: who sends too many is told so.
	if n > p.limits.Commands {
		return fmt.Errorf("more than %d refs in one push", p.limits.Commands)
	}
	u, err := parseCommand(text)
	if err == nil && p.seen[u.Ref] {
		err = fmt.Errorf("ref %s is named twice", quote(u.Ref))
	}
	if err != nil {
		p.nameRefused(text)
		return fmt.Errorf("command %d: %w", n, err)
	}
	p.seen[u.Ref] = true
	p.head.Updates = append(p.head.Updates, u)
	return nil
}

// nameRefused keeps the name of a refused command as the client itself reads
// it: everything after the second space.
func (p *headParser) nameRefused(text string) {
	if parts := strings.SplitN(text, " ", 3); len(parts) == 3 {
		p.refused = parts[2]
	}
}

func parseCommand(text string) (Update, error) {
	if strings.ContainsRune(text, 0) {
		return Update{}, errors.New("a NUL byte after the first command")
	}
	// Exactly one space: with two, go-git reads another command than git, which
	// hangs up.
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return Update{}, errors.New("want OLD NEW REF with one space between")
	}
	u := Update{Old: parts[0], New: parts[1], Ref: parts[2]}
	if !validID(u.Old) || !validID(u.New) {
		return Update{}, fmt.Errorf("malformed ids %s %s (want lower-case hex)", quote(u.Old), quote(u.New))
	}
	if err := checkRef(u.Ref); err != nil {
		return Update{}, err
	}
	// The action is what the client claims. A lie fails at the forge, which
	// compares the old id before it swaps.
	switch from, to := zeroID(u.Old), zeroID(u.New); {
	case from && to:
		return Update{}, errors.New("neither an old nor a new id")
	case from:
		u.Action = ActionCreate
	case to:
		u.Action = ActionDelete
	default:
		u.Action = ActionUpdate
		if strings.HasPrefix(u.Ref, "refs/tags/") {
			// Tags do not move; git too asks for --force.
			u.Forced = ForcedYes
		}
	}
	return u, nil
}

// checkFormat holds every id to the hash the client declared.
func (p *headParser) checkFormat() error {
	want := 40
	if p.head.Capabilities.ObjectFormat == "sha256" {
		want = 64
	}
	for _, u := range p.head.Updates {
		if len(u.Old) != want || len(u.New) != want {
			return fmt.Errorf("ids of %s do not fit object-format %s", quote(u.Ref), p.head.Capabilities.format())
		}
	}
	// Without a command no format was declared, and the lines are not used.
	for _, id := range p.head.Shallow {
		if len(id) != want && !p.head.Empty() {
			return fmt.Errorf("shallow id %s does not fit object-format %s", quote(id), p.head.Capabilities.format())
		}
	}
	return nil
}

// options reads the push options that follow the commands' flush when the
// client asked for them.
func (p *headParser) options() error {
	for {
		line, err := p.next()
		if err != nil || line == nil {
			return err
		}
		if len(p.head.Options) >= p.limits.PushOptions {
			return fmt.Errorf("more than %d push options", p.limits.PushOptions)
		}
		option := string(bytes.TrimSuffix(line, []byte("\n")))
		if option == "" || !utf8.ValidString(option) || strings.ContainsFunc(option, unicode.IsControl) {
			return fmt.Errorf("malformed push option %s", quote(option))
		}
		p.head.Options = append(p.head.Options, option)
	}
}
