package namework

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var buildWork = []work{
	{name: "build/gcc and make -j8", needs: []string{"gcc", "make"}, prepare: cProject, script: `
make -s -j8 && ./program; touch src/u1.c; make -s -j8; ./program; ar t lib.a | wc -l; make -s install; make -s clean; make -s -j8`},
	{name: "build/go test", needs: []string{"go"}, prepare: goModule, script: `
go build -o tool ./cmd/tool; ./tool; ` + map[bool]string{true: "go vet ./...; go test", false: "go test -vet=off"}[size(0, 1) == 1] + ` ./... | sed 's/\t[0-9.]*s$//; s/(cached)//; s/[ \t]*$//'; go mod tidy; go list ./...; go generate ./...; gofmt -l .; gofmt -w unformatted.go; go clean`},
	{name: "build/cargo new", needs: nil, prepare: cargoHere, script: `
cargo new -q one; cargo new -q --lib two; cargo init -q three --name three
git init -q -b main in; cd in; cargo new -q four; git status -s; cd ..; ls -A one; git init -q one; git -C one status -s`},
}

// cProject is a library of many files and a program.
func cProject(t *testing.T, p *place) {
	t.Helper()
	n := size(16, 300)
	var declared, called strings.Builder
	for i := range n {
		p.write(t, fmt.Sprintf("%s/src/u%d.c", p.tree, i), fmt.Sprintf("#include \"../all.h\"\nint u%d(int x) { return x + %d; }\n", i, i))
		fmt.Fprintf(&declared, "int u%d(int x);\n", i)
		fmt.Fprintf(&called, "\tx = u%d(x);\n", i)
	}
	p.write(t, p.tree+"/all.h", declared.String())
	p.write(t, p.tree+"/main.c", "#include <stdio.h>\n#include \"all.h\"\nint main(void)\n{\n\tint x = 0;\n"+called.String()+"\tprintf(\"%d\\n\", x);\n\treturn 0;\n}\n")
	p.write(t, p.tree+"/Makefile", `OBJECTS = $(patsubst src/%.c,o/%.o,$(wildcard src/*.c))
program: main.c lib.a
	gcc -o $@ main.c lib.a
lib.a: $(OBJECTS)
	rm -f $@
	ar crD $@ $(sort $^)
o/%.o: src/%.c all.h | o
	gcc -MMD -c -o $@ $<
o:
	mkdir -p $@
install: program
	install -D -m 755 program root/bin/program
	ln -sf program root/bin/alias
clean:
	rm -rf o lib.a program
-include $(wildcard o/*.d)
`)
}

// goModule is a module whose tests write files. Its cache is a second folder of the run, which the
// second time has the standard library, but for the larger size.
func goModule(t *testing.T, p *place) {
	t.Helper()
	cache := p.base + "/cache"
	if size(0, 1) == 1 {
		_ = os.RemoveAll(cache)
	}
	p.make(t, cache)
	p.shown = []string{cache}
	p.env = append(p.env[:8:8], "GOCACHE="+cache, "GOPATH="+cache+"/path", "GOTOOLCHAIN=local", "GOPROXY=off", "CGO_ENABLED=0", "GOTELEMETRY=off")
	p.write(t, p.tree+"/go.mod", "module m.example/m\n\ngo 1.21\n")
	p.write(t, p.tree+"/cmd/tool/main.go", "package main\n\nimport \"m.example/m\"\n\nfunc main() { println(m.Add(1, 2)) }\n")
	p.write(t, p.tree+"/add.go", "// Package m adds.\npackage m\n\n//go:generate sh -c \"echo made > generated\"\n\n// Add adds.\nfunc Add(a, b int) int { return a + b }\n")
	p.write(t, p.tree+"/unformatted.go", "package m\nfunc  two( ) int { return 2 }\n")
	p.write(t, p.tree+"/add_test.go", `package m

import (
	"os"
	"testing"
)

func TestAdd(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a", []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/a", "golden"); err != nil {
		if err := os.WriteFile("golden", []byte("a"), 0o600); err != nil { // on another file system
			t.Fatal(err)
		}
	}
	if err := os.Chmod("golden", 0o600); err != nil {
		t.Fatal(err)
	}
	if Add(1, 2) != 3 || two() != 2 {
		t.Error("wrong")
	}
}
`)
}

// cargoHere shows the run a toolchain of Rust, wherever the user has it.
func cargoHere(t *testing.T, p *place) {
	t.Helper()
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	root := strings.TrimSpace(string(out))
	if err != nil || root == "" {
		lacking(t, "cargo")
	}
	if _, err := os.Stat(filepath.Join(root, "bin", "cargo")); err != nil {
		lacking(t, "cargo")
	}
	if root == "/usr" {
		return // the system's, which every run sees
	}
	p.shown = []string{root + ":ro"}
	p.path = searched + ":" + root + "/bin"
}

// pythonTimes are compiled modules, which hold the time of their source.
var pythonTimes = regexp.MustCompile(`\.pyc$`)
