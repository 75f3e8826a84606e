//go:build linux

package clients

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1" // npm's name for a file
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// files are what the origin's registries hold: one small package of each kind. A HOST
// in a text is the host that was asked.
type files map[string][]byte

func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, there := f[r.URL.Path]
	if !there {
		http.NotFound(w, r)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/npm/tiny") && !strings.HasSuffix(r.URL.Path, ".tgz") || strings.HasPrefix(r.URL.Path, "/cargo/config") {
		body = bytes.ReplaceAll(body, []byte("HOST"), []byte(r.Host))
	}
	if strings.HasPrefix(r.URL.Path, "/simple/") && strings.HasSuffix(r.URL.Path, "/") {
		w.Header().Set("Content-Type", "text/html")
	}
	_, _ = w.Write(body)
}

// registries fills files, and a git repository whose files are served as well.
func registries(t *testing.T, repository string) files {
	t.Helper()
	f := files{}
	f.npm(t)
	f.pip(t)
	f.cargo(t)
	f.golang(t)
	f.apt()
	f.git(t, repository)
	return f
}

func (f files) npm(t *testing.T) {
	t.Helper()
	pkg := tarball(t, map[string]string{"package/package.json": `{"name":"tiny","version":"1.0.0","main":"index.js"}`, "package/index.js": "module.exports = 'tiny'\n"})
	sum := sha1.Sum(pkg) // npm's name for a file
	f["/npm/tiny/-/tiny-1.0.0.tgz"] = pkg
	f["/npm/tiny"] = fmt.Appendf(nil, `{"name":"tiny","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"tiny","version":"1.0.0",
		"dist":{"tarball":"https://HOST/npm/tiny/-/tiny-1.0.0.tgz","shasum":"%x"}}}}`, sum)
}

func (f files) pip(t *testing.T) {
	t.Helper()
	const wheel = "tiny-1.0.0-py3-none-any.whl"
	f["/simple/tiny/"+wheel] = archive(t, map[string]string{
		"tiny.py":                               "def main():\n    print('tiny')\n",
		"tiny-1.0.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0.0\n",
		"tiny-1.0.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"tiny-1.0.0.dist-info/entry_points.txt": "[console_scripts]\ntiny = tiny:main\n",
		"tiny-1.0.0.dist-info/RECORD":           "tiny.py,,\ntiny-1.0.0.dist-info/METADATA,,\ntiny-1.0.0.dist-info/WHEEL,,\ntiny-1.0.0.dist-info/entry_points.txt,,\ntiny-1.0.0.dist-info/RECORD,,\n",
	})
	f["/simple/tiny/"] = []byte(`<a href="` + wheel + `">` + wheel + `</a>`)
	// pipx makes itself an environment with these, from the same index.
	found, _ := filepath.Glob("/usr/share/python-wheels/*.whl")
	for _, path := range found {
		name := filepath.Base(path)
		project, _, _ := strings.Cut(name, "-")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f["/simple/"+project+"/"+name] = data
		f["/simple/"+project+"/"] = []byte(`<a href="` + name + `">` + name + `</a>`)
	}
}

func (f files) cargo(t *testing.T) {
	t.Helper()
	crate := tarball(t, map[string]string{
		"tiny-1.0.0/Cargo.toml": "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
		"tiny-1.0.0/src/lib.rs": "pub fn tiny() {}\n",
	})
	sum := sha256.Sum256(crate)
	f["/cargo/config.json"] = []byte(`{"dl":"https://HOST/cargo/dl"}`)
	f["/cargo/ti/ny/tiny"] = []byte(`{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"` + hex.EncodeToString(sum[:]) + `","features":{},"yanked":false}` + "\n")
	f["/cargo/dl/tiny/1.0.0/download"] = crate
}

func (f files) golang(t *testing.T) {
	t.Helper()
	const at, mod = "/go/tiny.example/tiny/@v/", "module tiny.example/tiny\n\ngo 1.20\n"
	f[at+"list"] = []byte("v1.0.0\n")
	f[at+"v1.0.0.info"] = []byte(`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`)
	f[at+"v1.0.0.mod"] = []byte(mod)
	f[at+"v1.0.0.zip"] = archive(t, map[string]string{"tiny.example/tiny@v1.0.0/go.mod": mod, "tiny.example/tiny@v1.0.0/tiny.go": "package tiny\n"})
}

func (f files) apt() {
	packages := []byte("Package: tiny\nVersion: 1.0.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nFilename: pool/tiny.deb\nSize: 1\n" +
		"SHA256: " + strings.Repeat("0", 64) + "\nDescription: tiny\n")
	f["/apt/dists/stable/main/binary-all/Packages"] = packages
	release := "Suite: stable\nCodename: stable\nArchitectures: all amd64 arm64\nComponents: main\nDate: Mon, 01 Jan 2024 00:00:00 UTC\nSHA256:\n"
	for _, arch := range []string{"all", "amd64", "arm64"} {
		body := packages
		if arch != "all" {
			body = nil
		}
		f["/apt/dists/stable/main/binary-"+arch+"/Packages"] = body
		release += fmt.Sprintf(" %x %d main/binary-%s/Packages\n", sha256.Sum256(body), len(body), arch)
	}
	f["/apt/dists/stable/Release"] = []byte(release)
}

// git makes the repository, and serves it as files: git's dumb protocol needs no more.
func (f files) git(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", dir + ".work"},
		{"-C", dir + ".work", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "tiny"},
		{"clone", "-q", "--bare", dir + ".work", dir},
		{"-C", dir, "update-server-info"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		f["/git/tiny.git"+strings.TrimPrefix(path, dir)] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tarball is a compressed archive of texts.
func tarball(t *testing.T, texts map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for name, text := range texts {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// archive is a zip of texts.
func archive(t *testing.T, texts map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := zip.NewWriter(&buf)
	for name, text := range texts {
		w, err := zw.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
