package gitgw

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"postern/gitgw/pack"
)

// empty stands for a tree that is not there.
const empty = ""

// protect refuses a push after which a protected path is not what it was. For each
// ref the trees at its two ends are compared, whatever happened between: so reverts,
// moves of blobs that the forge has, merges and changed modes are all seen.
//
// What a path was is said by the ref's old value or, for whoever merges what others
// did, by the default branch as it is now. A new ref has no old value: it goes by the
// commit at which it left the default branch, since what it begins from could be
// anybody's, as of a pull request or another branch. A path is unchanged if it is the
// same in one of these.
func (in *inspection) protect(patterns []PathPattern) error {
	if len(patterns) == 0 {
		return nil
	}
	for _, u := range in.p.head.Updates {
		if u.Action == ActionDelete {
			continue
		}
		changed, err := in.changed(u, patterns)
		if err != nil {
			return cannotTell(CodeProtectUnknown, u.Ref, "cannot tell whether protected paths change", err)
		}
		if changed != "" {
			return &contentError{
				code: CodeProtected, ref: u.Ref, reason: "push changes " + shownPath(changed) + ", which is protected",
				detail: "compared with " + in.compared(u) + "; merge the default branch again if the change is from there",
			}
		}
	}
	return nil
}

func (in *inspection) compared(u Update) string {
	if u.Action == ActionCreate {
		return "the default branch, as it is and where the branch has left it"
	}
	return "what " + shortRef(u.Ref) + " holds and the default branch"
}

// changed names a protected path that is not what it was, "" if there is none.
func (in *inspection) changed(u Update, patterns []PathPattern) (string, error) {
	tip, ok := pack.ParseID(u.New)
	if !ok {
		return "", errors.New("malformed id")
	}
	tip, err := in.peel(tip)
	if err != nil {
		return "", err
	}
	after, err := in.root(tip)
	if err != nil {
		return "", err
	}
	bases, err := in.bases(u, tip)
	if err != nil {
		return "", err
	}
	d := &difference{in: in, patterns: patterns}
	var before []string
	for _, base := range bases {
		if base == empty {
			before = append(before, empty)
			continue
		}
		root, err := in.forge.tree(base)
		if e, ok := errors.AsType[*upstreamError](err); ok && base == defaultBranch && (e.status == http.StatusNotFound || e.status == http.StatusConflict) {
			continue // a repository without commits has no default branch either
		}
		if err != nil {
			return "", err
		}
		before = append(before, root.id)
	}
	return d.tree(nil, after, before, false)
}

// defaultBranch is how the forge's API names the commit that a repository stands at.
const defaultBranch = "HEAD"

// bases are the commits on the forge whose paths count as unchanged, as the API names
// them.
func (in *inspection) bases(u Update, tip pack.ID) ([]string, error) {
	if u.Action != ActionCreate {
		return []string{u.Old, defaultBranch}, nil
	}
	edge, _, err := in.walk(tip, pack.ID{})
	if err != nil {
		return nil, err
	}
	switch len(edge) {
	case 0: // a history of its own, as of a branch for a site
		return []string{empty, defaultBranch}, nil
	case 1:
		from, err := in.left(in.pack.Hex(edge[0]))
		return []string{from, defaultBranch}, err
	}
	// With several, each of them could lend an old state of a path.
	return []string{defaultBranch}, nil
}

// left is the commit at which the history of a commit on the forge left the default
// branch; of one that was never there, empty.
func (in *inspection) left(id string) (string, error) {
	base, err := in.forge.mergeBase(defaultBranch, id)
	if err != nil || base != "" {
		return base, err
	}
	// Nothing in common is one thing, a forge that knows nothing of it another.
	_, err = in.forge.tree(id)
	return empty, err
}

// root is the id of the tree of a commit that the pack or the forge has.
func (in *inspection) root(commit pack.ID) (string, error) {
	c, ok, err := in.commit(commit)
	if err != nil || ok {
		return in.pack.Hex(c.Tree), err
	}
	t, err := in.forge.tree(in.pack.Hex(commit))
	return t.id, err
}

// entries reads a tree by its id: from the pack, or else from the forge.
func (in *inspection) entries(id string) (map[string]pack.Entry, error) {
	if id == empty {
		return nil, nil
	}
	raw, ok := pack.ParseID(id)
	if !ok {
		return nil, errors.New("malformed id")
	}
	i, ok := in.pack.Find(raw)
	if !ok {
		t, err := in.forge.tree(id)
		return t.entries, err
	}
	kind, content, err := in.pack.Object(i)
	if err != nil {
		return nil, err
	}
	if kind != pack.Tree {
		return nil, fmt.Errorf("%s is a %s", id, kind)
	}
	list, err := in.pack.ParseTree(content)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]pack.Entry, len(list))
	for _, e := range list {
		entries[e.Name] = e
	}
	return entries, nil
}

// difference compares one tree with several that it may be like.
type difference struct {
	in       *inspection
	patterns []PathPattern
	trees    int
}

// tree compares the folder at path. all means that everything in it is protected.
// Where the whole is the same as in one base, so is each path in it.
func (d *difference) tree(path []string, after string, before []string, all bool) (string, error) {
	if slices.Contains(before, after) {
		return "", nil
	}
	if d.trees++; d.trees > 10_000 || len(path) > 100 {
		return "", errDeep
	}
	now, err := d.in.entries(after)
	if err != nil {
		return "", err
	}
	names := map[string]bool{}
	for name := range now {
		names[name] = true
	}
	then := make([]map[string]pack.Entry, len(before))
	for i, id := range before {
		if then[i], err = d.in.entries(id); err != nil {
			return "", err
		}
		for name := range then[i] {
			names[name] = true
		}
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		below := slices.Concat(path, []string{name})
		old := make([]pack.Entry, len(then))
		for i := range then {
			old[i] = then[i][name]
		}
		if changed, err := d.entry(below, now[name], old, all); changed != "" || err != nil {
			return changed, err
		}
	}
	return "", nil
}

// entry compares one name; the zero entry is one that is not there.
func (d *difference) entry(path []string, now pack.Entry, old []pack.Entry, all bool) (string, error) {
	if slices.ContainsFunc(old, func(e pack.Entry) bool { return e == now }) {
		return "", nil
	}
	how := apart
	for _, p := range d.patterns {
		how = max(how, p.reaches(path))
	}
	if all {
		how = matches
	}
	if how == apart {
		return "", nil
	}
	name := strings.Join(path, "/")
	// A link where a protected folder belongs leads around it. After a ** every link
	// would be one; those lead to paths that are compared by themselves.
	if how == toward && (now.IsLink() || slices.ContainsFunc(old, pack.Entry.IsLink)) {
		return name, nil
	}
	anyTree := now.IsTree()
	below := make([]string, 0, len(old))
	for _, e := range old {
		if e.IsTree() {
			anyTree = true
			below = append(below, e.ID)
		} else {
			below = append(below, empty)
		}
	}
	if how == matches && !now.IsTree() {
		// A file, link or submodule that is in none of the bases, or one that is gone.
		return name, nil
	}
	if !anyTree {
		return "", nil
	}
	after := empty
	if now.IsTree() {
		after = now.ID
	}
	return d.tree(path, after, below, how == matches)
}
