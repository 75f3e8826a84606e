package namework

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var packageWork = []work{
	{name: "package/npm install", needs: []string{"npm"}, prepare: npmProject, script: `
npm install --offline --no-audit --no-fund --loglevel=error > /dev/null; ls node_modules/.bin | head -3; node -e 'console.log(require("p0"), require("p3"))'
npm ls --depth=0 2>/dev/null | wc -l; npm ci --offline --no-audit --no-fund --loglevel=error > /dev/null; npm uninstall --offline --no-audit --no-fund --loglevel=error p1 > /dev/null; npm run -s hello`},
	{
		name: "package/python venv", needs: []string{"/usr/bin/python3"}, aside: pythonTimes, prepare: pythonProject,
		script: `
/usr/bin/python3 -m venv ` + map[bool]string{true: "", false: "--without-pip"}[size(0, 1) == 1] + ` v; . v/bin/activate; python -c 'import sys; print(sys.prefix == sys.base_prefix)'
python -m compileall -q pkg; python -m pkg; python -m zipapp pkg -o app.pyz -m pkg.__main__:main && python app.pyz; python -m unittest -q pkg.tests 2>&1 | tail -1
if test -x v/bin/pip; then pip install -q --no-index --no-build-isolation --no-deps ./pure-1.0-py3-none-any.whl; python -c 'import pure; print(pure.one)'; pip uninstall -q -y pure; fi`,
	},
}

// npmProject depends on packages that lie beside it, each on the next one.
func npmProject(t *testing.T, p *place) {
	t.Helper()
	n := size(12, 300)
	depends := map[string]string{}
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		about := map[string]any{"name": name, "version": "1.0.0", "main": "index.js", "bin": map[string]string{name + "-bin": "cli.js"}}
		about["scripts"] = map[string]string{}
		if i == 0 {
			about["scripts"] = map[string]string{"postinstall": "node -e \"require('fs').writeFileSync('built', 'x')\""}
		}
		text, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{"package.json": string(text), "index.js": fmt.Sprintf("module.exports = %d\n", i), "cli.js": "#!/usr/bin/env node\nconsole.log(1)\n", "README.md": "# " + name + "\n"}
		for j := range size(10, 40) {
			files[fmt.Sprintf("lib/a%d/b.js", j)] = fmt.Sprintf("exports.j = %d\n", j)
		}
		pack(t, filepath.Join(p.tree, "packed", name+".tgz"), files)
		depends[name] = "file:packed/" + name + ".tgz"
	}
	text, err := json.MarshalIndent(map[string]any{"name": "m", "version": "1.0.0", "dependencies": depends, "scripts": map[string]string{"hello": "echo hello"}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, p.tree+"/package.json", string(text))
}

// pack writes a package as npm publishes it.
func pack(t *testing.T, path string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for _, name := range sorted(files) {
		if err := w.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{w, z, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func pythonProject(t *testing.T, p *place) {
	t.Helper()
	// pip brings a cacert.pem, which is one of the names of secrets.
	p.make(t, p.tree+"/v")
	p.free = []string{p.tree + "/v"}
	p.write(t, p.tree+"/pkg/__init__.py", "")
	p.write(t, p.tree+"/pkg/__main__.py", "def main():\n    print('ran')\n\n\nif __name__ == '__main__':\n    main()\n")
	p.write(t, p.tree+"/pkg/tests.py", "import tempfile\nimport unittest\n\n\nclass T(unittest.TestCase):\n    def test(self):\n        with tempfile.NamedTemporaryFile(dir='.') as f:\n            f.write(b'x')\n")
	wheel(t, p.tree+"/pure-1.0-py3-none-any.whl")
}
