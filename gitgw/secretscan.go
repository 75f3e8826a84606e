package gitgw

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"postern/gitgw/pack"
	"postern/gitgw/secrets"
)

// secretScan looks for credentials in the blobs of a pack, each once. Where they
// stand is looked up afterwards, and only for those where something was found.
type secretScan struct {
	set     *secrets.Set
	scanner *secrets.Scanner
	broken  error
	found   map[int][]secrets.Finding // by the blob's number
	count   int
}

// maxFound is how many findings are kept of one push, one of a kind for each blob. If
// there are more it cannot be judged, since those that were not kept may count.
const maxFound = 2000

// secretScan prepares the scan, nil where no rule asks for it.
func (in *inspection) secretScan(c Conditions) *secretScan {
	if !c.Secrets {
		return nil
	}
	s := &secretScan{found: map[int][]secrets.Finding{}}
	if s.set, s.broken = secrets.Default(); s.broken == nil {
		s.scanner = s.set.NewScanner()
	}
	return s
}

// blob scans one blob.
func (s *secretScan) blob(i int, content io.Reader) error {
	if s.broken != nil {
		return s.broken
	}
	return s.scanner.Scan(content, func(f secrets.Finding) {
		again := func(known secrets.Finding) bool { return known.Rule == f.Rule }
		if s.count > maxFound || slices.ContainsFunc(s.found[i], again) {
			return
		}
		s.count++
		s.found[i] = append(s.found[i], f)
	})
}

// place is where a blob stands first.
type place struct{ path, commit string }

// verdict refuses the push if something was found that counts where it stands. What
// stands nowhere that the pack tells of counts.
func (s *secretScan) verdict(in *inspection) error {
	if n := in.pack.Outside(); n > 0 {
		return cannotTell(CodeSecretUnknown, "", "push cannot be judged", fmt.Errorf("%d of its objects are deltas against objects that are not sent along (is the pack thin?)", n))
	}
	if s.count > maxFound {
		return cannotTell(CodeSecretUnknown, "", "push cannot be judged", fmt.Errorf("more than %d words in it look like secrets", maxFound))
	}
	if len(s.found) == 0 {
		return nil
	}
	ids := map[string]int{}
	in.pack.IDs(func(id pack.ID, i int) {
		if len(s.found[i]) > 0 {
			ids[in.pack.Hex(id)] = i
		}
	})
	places, err := in.places(ids)
	if err != nil {
		return err
	}
	var told []string
	for _, i := range ids {
		for _, f := range s.found[i] {
			if where, counts := counting(f, places[i]); counts {
				if text := f.Rule + where; !slices.Contains(told, text) {
					told = append(told, text)
				}
			}
		}
	}
	if len(told) == 0 {
		return nil
	}
	slices.Sort(told)
	const most = 4
	if len(told) > most {
		told = append(told[:most], fmt.Sprintf("%d more", len(told)-most))
	}
	return &contentError{code: CodeSecret, reason: "a secret was found", detail: strings.Join(told, "; ")}
}

// counting reports whether a finding counts at one of its places, and words that one.
func counting(f secrets.Finding, places []place) (where string, counts bool) {
	if len(places) == 0 {
		return "", true
	}
	for _, p := range places {
		if f.In(p.path) {
			return " in " + shownPath(p.path) + ", commit " + p.commit[:min(10, len(p.commit))], true
		}
	}
	return "", false
}

// shownPath is a path as it may stand in git's output.
func shownPath(path string) string {
	if echoable(strings.ReplaceAll(path, " ", "_")) {
		return path
	}
	return quote(path)
}

// maxNodes is how many names in trees are looked at to find where a blob stands.
const maxNodes = 500_000

// places finds the paths of blobs, with the oldest commit of the push that has them.
func (in *inspection) places(ids map[string]int) (map[int][]place, error) {
	commits, err := in.commits()
	if err != nil {
		return nil, err
	}
	search := &search{in: in, ids: ids, seen: map[string]bool{}, places: map[int][]place{}}
	for _, id := range slices.Backward(commits) {
		c, ok, err := in.commit(id)
		if err != nil {
			return nil, err
		}
		if ok {
			if err := search.tree(c.Tree, "", in.pack.Hex(id)); err != nil {
				return nil, err
			}
		}
	}
	return search.places, nil
}

// commits lists the pack's commits that the refs lead to, the newest first.
func (in *inspection) commits() ([]pack.ID, error) {
	var list []pack.ID
	seen := map[pack.ID]bool{}
	for _, u := range in.p.head.Updates {
		start, ok := pack.ParseID(u.New)
		if !ok || u.Action == ActionDelete {
			continue
		}
		start, err := in.peel(start)
		if err != nil {
			return nil, err
		}
		queue, queued := []pack.ID{start}, map[pack.ID]bool{}
		for len(queue) > 0 {
			id := queue[0]
			queue = queue[1:]
			i, ok := in.pack.Find(id)
			if seen[id] || !ok {
				continue
			}
			seen[id] = true
			kind, content, err := in.pack.Object(i)
			if err != nil {
				return nil, err
			}
			if kind != pack.Commit {
				continue // a ref may name a blob
			}
			c, err := pack.ParseCommit(content)
			if err != nil {
				return nil, err
			}
			list = append(list, id)
			// A commit may name its parents a hundred thousand times.
			for _, parent := range c.Parents {
				if _, ok := in.pack.Find(parent); ok && !seen[parent] && !queued[parent] {
					queued[parent] = true
					queue = append(queue, parent)
				}
			}
		}
	}
	return list, nil
}

// search walks trees for blobs.
type search struct {
	in     *inspection
	ids    map[string]int
	seen   map[string]bool // tree and path
	nodes  int
	places map[int][]place
}

// errDeep is for trees that nobody makes by hand.
var errDeep = errors.New("its trees are too deep or too many")

// maxPlaces is how many paths of one blob are kept. If there are more, some path is
// not known, and what is found there counts.
const maxPlaces = 100

// note adds a place of a blob: a path once, with the oldest commit.
func (s *search) note(n int, at place) {
	known, noted := s.places[n]
	if noted && known == nil || slices.ContainsFunc(known, func(p place) bool { return p.path == at.path }) {
		return
	}
	if s.places[n] = append(known, at); len(known) == maxPlaces {
		s.places[n] = nil
	}
}

func (s *search) tree(id pack.ID, prefix, commit string) error {
	key := string(id[:]) + prefix
	i, ok := s.in.pack.Find(id)
	if !ok || s.seen[key] {
		return nil
	}
	if s.seen[key] = true; len(prefix) > 4096 || len(s.seen) > 50_000 {
		return errDeep
	}
	kind, content, err := s.in.pack.Object(i)
	if err != nil || kind != pack.Tree {
		return err
	}
	entries, err := s.in.pack.ParseTree(content)
	if err != nil {
		return err
	}
	if s.nodes += len(entries); s.nodes > maxNodes {
		return errDeep
	}
	for _, e := range entries {
		if n, ok := s.ids[e.ID]; ok {
			s.note(n, place{prefix + e.Name, commit})
		}
		if !e.IsTree() {
			continue
		}
		raw, err := hex.DecodeString(e.ID)
		if err != nil {
			return err
		}
		var below pack.ID
		copy(below[:], raw)
		if err := s.tree(below, prefix+e.Name+"/", commit); err != nil {
			return err
		}
	}
	return nil
}
