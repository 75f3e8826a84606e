//go:build linux

package clients

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// node is the need of a node that knows NODE_USE_ENV_PROXY.
const node = "node>=22.21"

// missing says what a client needs and this machine lacks; "" is nothing. A need is a
// program of the system, "python3:" and a module of its Python, "npm:" and a package
// that `make clients` installs, or node.
func (c client) missing() string {
	if c.absent != "" {
		return c.absent
	}
	for _, need := range c.needs {
		if why := lacks(need); why != "" {
			return why
		}
	}
	return ""
}

func lacks(need string) string {
	if need == node {
		if nodeProgram() == "" {
			return "no node from 22.21 on, where NODE_USE_ENV_PROXY began"
		}
		return ""
	}
	if module, ok := strings.CutPrefix(need, "python3:"); ok {
		if out, err := exec.Command("/usr/bin/python3", "-c", "import "+module).CombinedOutput(); err != nil {
			return fmt.Sprintf("no module %s of /usr/bin/python3: %v %s", module, err, lastLine(out))
		}
		return ""
	}
	if pkg, ok := strings.CutPrefix(need, "npm:"); ok {
		if fromNPM(pkg) == "" {
			return "no package " + pkg + " in bin/clients"
		}
		return ""
	}
	path, err := exec.LookPath(need)
	if err != nil {
		return err.Error()
	}
	if file, err := filepath.EvalSymlinks(path); err != nil || !strings.HasPrefix(file, "/usr/") {
		return path + " is not a program of the system, which every run sees"
	}
	return ""
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// npmFolder is where `make clients` puts packages, for a run to see; nil if it did not.
func npmFolder() []string {
	found, _ := filepath.Glob("../../bin/clients/node_modules")
	if len(found) == 0 {
		return nil
	}
	dir, err := filepath.Abs(found[0])
	if err != nil {
		return nil
	}
	return []string{dir}
}

// fromNPM is a file of those packages; "" if it is not there.
func fromNPM(pattern string) string {
	for _, dir := range npmFolder() {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

// nodeProgram is a node that knows NODE_USE_ENV_PROXY; "" if there is none.
func nodeProgram() string {
	for _, path := range []string{fromNPM("node-linux-*/bin/node"), "/usr/bin/node", "/usr/local/bin/node"} {
		out, err := exec.Command(path, "-p", "const [a, b] = process.versions.node.split('.').map(Number); a > 24 || a == 24 && b >= 5 || a == 22 && b >= 21").Output()
		if err == nil && strings.TrimSpace(string(out)) == "true" {
			return path
		}
	}
	return ""
}
