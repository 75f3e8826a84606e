package namework

import (
	"archive/zip"
	"maps"
	"os"
	"slices"
	"testing"
)

// sorted are the keys in order, for archives that are the same each time.
func sorted(files map[string]string) []string { return slices.Sorted(maps.Keys(files)) }

// wheel writes a small package of Python (PEP 427).
func wheel(t *testing.T, path string) {
	t.Helper()
	files := map[string]string{
		"pure.py":                     "one = 1\n",
		"pure-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pure\nVersion: 1.0\n",
		"pure-1.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"pure-1.0.dist-info/RECORD":   "pure.py,,\npure-1.0.dist-info/METADATA,,\npure-1.0.dist-info/WHEEL,,\npure-1.0.dist-info/RECORD,,\n",
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, name := range sorted(files) {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{z, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
