//go:build !linux

package gitgw

import "os"

func unnamedFile(dir string) (*os.File, error) { return removedFile(dir) }

// freeSpace is not asked here: a full disk refuses by itself.
func freeSpace(*os.File) (free, size int64, known bool) { return 0, 0, false }
