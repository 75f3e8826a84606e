package sandbox

import (
	"io/fs"
	"os"
)

// addAliases looks for the other names (hard links) of files that are denied: a mount is
// tied to one name, and through another the same file would be read or written. Each
// name in a folder that the run sees is denied as well; those that lie elsewhere it
// cannot reach. This is a walk of its own, with nothing left out, for the few folders
// that have such a file.
func (f *Facts) addAliases() error {
	if len(f.aliased) == 0 {
		return nil
	}
	wanted := make(map[FileID]DenialKind, len(f.aliased))
	inodes := make(map[uint64]bool, len(f.aliased))
	for _, d := range f.aliased {
		if kind, ok := wanted[d.ID]; !ok || kind < d.Kind {
			wanted[d.ID] = d.Kind
		}
		inodes[d.ID.Ino] = true
	}
	met := map[FileID]uint64{}
	denied := make(map[string]DenialKind, len(f.Denials))
	for _, d := range f.Denials {
		denied[d.Path] = max(d.Kind, denied[d.Path])
	}
	seen := 0
	for i := range f.Roots {
		paths, n := sameInode(&f.Roots[i], inodes, maxEntries-seen)
		if seen += n; seen >= maxEntries {
			return &Refusal{Reason: ReasonBind, Detail: "the folder " + f.Roots[i].Path + " cannot be searched for other names of protected files", Err: errTooLarge}
		}
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			kind, ok := wanted[idOf(info)]
			met[idOf(info)]++
			if had, known := denied[path]; !ok || known && had >= kind {
				continue
			}
			denied[path] = kind
			f.warnf("%s is another name (a hard link) of a file that is protected, and is protected too", path)
			f.Denials = append(f.Denials, Denial{Path: path, Kind: kind, ID: idOf(info)})
		}
	}
	for _, d := range f.aliased {
		// A directory of some file systems says other numbers than its files do.
		if info, err := os.Lstat(d.Path); err == nil && met[d.ID] < links(info) && !sureInodes(d.Path) {
			f.warnf("%s has another name (a hard link): if that is in a folder of the run, it is not protected there", d.Path)
		}
	}
	return nil
}

// sameInode lists what below a root has one of the inode numbers, and how many names
// were seen.
func sameInode(root *Root, inodes map[uint64]bool, limit int) (paths []string, seen int) {
	if !root.Dir {
		return []string{root.Path}, 1
	}
	type folder struct {
		path  string
		depth int
	}
	buf := make([]byte, listBuffer)
	for todo := []folder{{root.Path, 1}}; len(todo) > 0 && seen < limit; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		// What cannot be listed is hidden, or somebody else's.
		_ = list(at.path, buf, nil, func(name []byte, mode fs.FileMode, ino uint64) {
			seen++
			switch {
			case mode.IsDir() && at.depth < maxDepth && len(at.path) < maxPath:
				todo = append(todo, folder{at.path + "/" + string(name), at.depth + 1})
			case mode.IsRegular() && inodes[ino]:
				paths = append(paths, at.path+"/"+string(name))
			}
		})
	}
	return paths, seen
}
