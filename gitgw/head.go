package gitgw

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// Update is one command of a push: set Ref from Old to New. Ids are lower-case
// hex of the repository's hash; an id of zeros means that the ref is not there.
type Update struct {
	Ref    string
	Old    string
	New    string
	Action Action
	// Forced says of an update whether it loses what the ref held. Of a tag's it is
	// always so, of a branch's only the pack tells, and the pack is looked into only
	// where a rule needs it.
	Forced Forced
}

// Forced is whether an update is a forced one.
type Forced uint8

// What is known of an update.
const (
	ForcedUnknown Forced = iota
	ForcedNo
	ForcedYes
)

// Head is everything a push says before its pack: what the rules judge and,
// encoded anew, what the forge gets.
type Head struct {
	Updates      []Update
	Capabilities Capabilities
	// Shallow are the boundary commits of a shallow clone.
	Shallow []string
	// Options are the push options, in order.
	Options []string
}

// Empty reports whether the head holds no command: the `0000` that git sends to
// try its credentials before a large push, or a shallow clone with nothing new.
func (h *Head) Empty() bool { return len(h.Updates) == 0 }

// DeletesOnly reports whether every command deletes, so that no pack follows.
func (h *Head) DeletesOnly() bool {
	for _, u := range h.Updates {
		if u.Action != ActionDelete {
			return false
		}
	}
	return !h.Empty()
}

// Encode writes the head as git itself would. [ReadHead] of the result gives
// the same head.
func (h *Head) Encode(w io.Writer) error {
	buf := bufio.NewWriter(w)
	enc := pktline.NewEncoder(buf)
	for _, id := range h.Shallow {
		if err := enc.Encodef("shallow %s\n", id); err != nil {
			return fmt.Errorf("encode shallow line: %w", err)
		}
	}
	for i, u := range h.Updates {
		line := u.Old + " " + u.New + " " + u.Ref
		if i == 0 {
			line += "\x00 " + h.Capabilities.String()
		}
		if err := enc.EncodeString(line); err != nil {
			return fmt.Errorf("encode command for %s: %w", u.Ref, err)
		}
	}
	if err := enc.Flush(); err != nil {
		return fmt.Errorf("encode flush: %w", err)
	}
	if h.Capabilities.PushOptions && !h.Empty() {
		for _, option := range h.Options {
			if err := enc.EncodeString(option); err != nil {
				return fmt.Errorf("encode push option: %w", err)
			}
		}
		if err := enc.Flush(); err != nil {
			return fmt.Errorf("encode flush: %w", err)
		}
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("encode push: %w", err)
	}
	return nil
}

// validID accepts what git writes: 40 (SHA-1) or 64 (SHA-256) lower-case hex
// digits. git reads upper case too; nobody sends it, and one form is enough.
func validID(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}

func zeroID(id string) bool { return strings.Trim(id, "0") == "" }
