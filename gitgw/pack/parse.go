package pack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// CommitHead is what a commit says of other objects.
type CommitHead struct {
	Tree    ID
	Parents []ID
}

// ParseCommit reads the first lines of a commit: `tree`, then every `parent`. It
// stops where git stops, at the first line that is neither.
func ParseCommit(content []byte) (CommitHead, error) {
	var c CommitHead
	var ok bool
	line, rest, _ := bytes.Cut(content, []byte("\n"))
	tree, found := strings.CutPrefix(string(line), "tree ")
	if c.Tree, ok = ParseID(tree); !found || !ok {
		return c, errors.New("malformed commit")
	}
	for {
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		text, found := strings.CutPrefix(string(line), "parent ")
		if !found {
			return c, nil
		}
		parent, ok := ParseID(text)
		if !ok {
			return c, errors.New("malformed commit")
		}
		c.Parents = append(c.Parents, parent)
	}
}

// ParseTag returns the object that an annotated tag names.
func ParseTag(content []byte) (ID, error) {
	line, _, _ := bytes.Cut(content, []byte("\n"))
	text, found := strings.CutPrefix(string(line), "object ")
	id, ok := ParseID(text)
	if !found || !ok {
		return id, errors.New("malformed tag")
	}
	return id, nil
}

// Entry is one name in a tree.
type Entry struct {
	Name string
	Mode string // octal digits without leading zero, as in 100644 and 40000
	ID   string // hex
}

// IsTree reports whether the entry is a folder.
func (e Entry) IsTree() bool { return e.Mode == "40000" }

// IsLink reports whether the entry leads elsewhere: a symbolic link or a submodule.
func (e Entry) IsLink() bool { return e.Mode == "120000" || e.Mode == "160000" }

// modes are those that git writes, and one that it once wrote.
var modes = map[string]bool{"40000": true, "100644": true, "100664": true, "100755": true, "120000": true, "160000": true}

// ParseTree reads a tree's entries. A name that stands twice, or that no file system
// could hold, is an error: readers differ in what they make of it. So is a mode that
// git does not write: it takes 40001 for a folder and 7 for a submodule.
func (p *Pack) ParseTree(content []byte) ([]Entry, error) {
	var entries []Entry
	seen := map[string]bool{}
	for len(content) > 0 {
		head, rest, ok := bytes.Cut(content, []byte{0})
		mode, name, spaced := strings.Cut(string(head), " ")
		if !ok || !spaced || len(rest) < p.width {
			return nil, errors.New("malformed tree")
		}
		if name == "" || name == "." || name == ".." || strings.Contains(name, "/") || seen[name] {
			return nil, fmt.Errorf("malformed tree: name %.40q", name)
		}
		if mode = strings.TrimLeft(mode, "0"); !modes[mode] {
			return nil, fmt.Errorf("malformed tree: mode %.10q", mode)
		}
		seen[name] = true
		entries = append(entries, Entry{Name: name, Mode: mode, ID: hex.EncodeToString(rest[:p.width])})
		content = rest[p.width:]
	}
	return entries, nil
}
