//go:build !linux

package gitgw

import "os"

func unnamedFile(dir string) (*os.File, error) { return removedFile(dir) }
