//go:build !linux

package sandbox

import (
	"io/fs"
	"os"
	"syscall"
)

// listBuffer is not used where the standard library lists.
const listBuffer = 0

// list calls visit for every entry of a directory, in the order of the disk.
func list(dir string, _ []byte, _ *folderStat, visit func(name []byte, mode fs.FileMode, ino uint64)) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			visit([]byte(e.Name()), e.Type(), idOf(info).Ino)
		}
	}
	return err
}

// Notes of earlier walks are taken on Linux alone.
type (
	walkCache struct{}
	cacheNode struct{}
)

const noRec = -1

func (w *walk) openCache(from *place)                                { from.rec = noRec }
func (w *walk) closeCache()                                          {}
func (s *scanner) known(*place) bool                                 { return false }
func (s *scanner) noted(*place, string) (rec int32, node *cacheNode) { return noRec, nil }
func (s *scanner) take(*place, *folderStat)                          {}

func sureInodes(string) bool { return false }
