//go:build linux

package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	allowedHost = "allowed.example"
	deniedHost  = "denied.example"
)

// client is one program, and how it shows that it works.
type client struct {
	name  string
	needs []string // programs, or modules of the system's Python after "python3:"
	files func(*testing.T, *world)
	env   []string
	binds []string

	// script prints want at HOST that is allowed, and fails at one that is denied with
	// denied (a regular expression) in its output.
	script, want, denied string

	// again is what fails at the denied host, after script at the allowed one, in place
	// of script in a run of its own.
	again string

	absent  string // why it cannot be had
	allowed string // in place of allowedHost
}

// reason is what the status line of a refused CONNECT says, and clients show.
const reason = `denied\.example:\d+ is refused: no rule allows it`

// code is what clients show that keep the words of the status line to themselves.
const code = `\b403\b`

func matrix() []client {
	return []client{
		{name: "curl", needs: []string{"curl"}, script: "curl -sS https://HOST/hello", want: "hello from allowed.example", denied: code},
		{name: "curl, plain HTTP", needs: []string{"curl"}, script: "curl -sS --fail-with-body http://HOST/hello", want: "hello from allowed.example", denied: reason},
		{name: "git over HTTPS", needs: []string{"git"}, script: "GIT_SSL_CAINFO=$SSL_CERT_FILE git clone -q https://HOST/git/tiny.git /tmp/tiny && git -C /tmp/tiny log --format=%s", want: "tiny", denied: code},
		{name: "git over SSH", needs: []string{"git", "ssh"}, script: "git clone -q git@HOST:tiny.git /tmp/tiny && git -C /tmp/tiny log --format=%s", want: "tiny", denied: "denied by the policy"},
		{
			name: "gh", needs: []string{"gh"}, allowed: "api.github.com",
			script: `export GH_TOKEN=x GH_ENTERPRISE_TOKEN=x; case HOST in api.github.com) gh api user;; *) gh api --hostname HOST user;; esac`, want: `"login":"octocat"`, denied: reason,
		},
		{
			name: "npm", needs: []string{"npm"},
			script: "npm install --prefix /tmp/n --cafile $SSL_CERT_FILE --registry https://HOST/npm/ --no-audit --no-fund --fetch-retries 0 tiny && cat /tmp/n/node_modules/tiny/index.js", want: "module.exports = 'tiny'", denied: code,
		},
		{
			name: "pip", needs: []string{"python3:pip"},
			script: "/usr/bin/python3 -m pip --isolated download --no-deps --retries 1 --disable-pip-version-check --cert $SSL_CERT_FILE -d /tmp/p -i https://HOST/simple tiny && ls /tmp/p", want: "tiny-1.0.0-py3-none-any.whl", denied: reason,
		},
		{
			name: "pipx", needs: []string{"pipx"},
			script: "export PIP_CERT=$SSL_CERT_FILE PIP_INDEX_URL=https://HOST/simple PIP_RETRIES=0 PIP_DISABLE_PIP_VERSION_CHECK=1; pipx install tiny; ~/.local/bin/tiny", want: "installed package tiny 1.0.0", denied: "No matching distribution",
			again: "pipx install --index-url https://HOST/simple other", // where the slow part is done already
		},
		{
			name: "cargo", needs: []string{"/usr/bin/cargo"}, files: cargoProject,
			script: "cp -r cargo /tmp/c && cd /tmp/c && sed -i s/ORIGIN/HOST/ .cargo/config.toml && RUSTC_BOOTSTRAP=1 CARGO_HTTP_CAINFO=$SSL_CERT_FILE CARGO_NET_RETRY=0 /usr/bin/cargo -Z sparse-registry fetch && ls ~/.cargo/registry/src/*", want: "tiny-1.0.0", denied: code,
		},
		{
			name: "go", needs: []string{"go"},
			script: "export GOPROXY=https://HOST/go GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw; go mod download tiny.example/tiny@v1.0.0 && ls ~/go/pkg/mod/tiny.example", want: "tiny@v1.0.0", denied: reason,
		},
		{
			name: "node fetch", needs: []string{"node>=22.21"}, binds: nodeFolder(),
			script: nodeProgram() + ` --use-openssl-ca -e 'fetch(process.argv[1]).then(async r => console.log(await r.text())).catch(e => { console.error(e, e.cause); process.exit(1) })' https://HOST/hello`, want: "hello from allowed.example", denied: code,
		},
		{
			name: "Java URL.openStream", needs: []string{"javac", "keytool"}, files: javaProject,
			env:    []string{"JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStorePassword=changeit -Djavax.net.ssl.trustStore=trust.p12"},
			script: "java Fetch.java https://HOST/hello", want: "hello from allowed.example", denied: reason,
		},
		{
			name: "Python httpx", needs: []string{"python3:httpx"},
			script: `/usr/bin/python3 -c 'import httpx, sys; print(httpx.get(sys.argv[1]).text)' https://HOST/hello`, want: "hello from allowed.example", denied: reason,
		},
		{
			name: "Python urllib", needs: []string{"python3:urllib.request"},
			script: `/usr/bin/python3 -c 'import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).read().decode())' https://HOST/hello`, want: "hello from allowed.example", denied: reason,
		},
		{
			name: "Python requests", needs: []string{"python3:requests"},
			script: `REQUESTS_CA_BUNDLE=$SSL_CERT_FILE /usr/bin/python3 -c 'import requests, sys; print(requests.get(sys.argv[1]).text)' https://HOST/hello`, want: "hello from allowed.example", denied: reason,
		},
		{name: "uv", absent: "no registry that this project installs from has it, PyPI alone"},
		{name: "wget", needs: []string{"wget"}, script: "wget -nv --ca-certificate=$SSL_CERT_FILE -O - https://HOST/hello", want: "hello from allowed.example", denied: reason},
		{name: "gRPC in Go", files: copySelf, script: "./self " + grpcCommand + " HOST:443", want: "SERVING", denied: reason},
		{
			name: "apt", needs: []string{"apt-get"},
			script: `mkdir -p /tmp/a/state/lists/partial /tmp/a/cache/archives/partial /tmp/a/etc
echo "deb [trusted=yes] https://HOST/apt stable main" > /tmp/a/etc/sources.list
cat > /tmp/a/conf <<E
Dir::Etc "/tmp/a/etc"; Dir::State "/tmp/a/state"; Dir::Cache "/tmp/a/cache"; Dir::State::status "/dev/null";
APT::Sandbox::User ""; Acquire::https::CAInfo "$SSL_CERT_FILE"; Acquire::Retries "0"; APT::Update::Error-Mode "any";
E
export APT_CONFIG=/tmp/a/conf
apt-get -q update && apt-cache policy tiny`, want: "1.0.0", denied: code,
		},
	}
}

// missing says what a client needs and this machine lacks; "" is nothing.
func (c client) missing() string {
	if c.absent != "" {
		return c.absent
	}
	for _, need := range c.needs {
		module, python := strings.CutPrefix(need, "python3:")
		switch {
		case need == "node>=22.21":
			if nodeProgram() == "" {
				return "no node from 22.21 on, where NODE_USE_ENV_PROXY began"
			}
		case python:
			if out, err := exec.Command("/usr/bin/python3", "-c", "import "+module).CombinedOutput(); err != nil {
				return fmt.Sprintf("no module %s of /usr/bin/python3: %v %s", module, err, lastLine(out))
			}
		default:
			path, err := exec.LookPath(need)
			if err != nil {
				return err.Error()
			}
			if file, err := filepath.EvalSymlinks(path); err != nil || !strings.HasPrefix(file, "/usr/") {
				return fmt.Sprintf("%s is not a program of the system, which every run sees", path)
			}
		}
	}
	return ""
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// nodeFolder is where `make clients` puts a node, if it is there.
func nodeFolder() []string {
	found, _ := filepath.Glob("../../bin/clients/node_modules/node-linux-*/bin/node")
	if len(found) == 0 {
		return nil
	}
	dir, err := filepath.Abs(filepath.Dir(found[0]))
	if err != nil {
		return nil
	}
	return []string{dir}
}

// nodeProgram is a node that knows NODE_USE_ENV_PROXY.
func nodeProgram() string {
	candidates := []string{"/usr/bin/node", "/usr/local/bin/node"}
	for _, dir := range nodeFolder() {
		candidates = slices.Insert(candidates, 0, filepath.Join(dir, "node"))
	}
	for _, path := range candidates {
		out, err := exec.Command(path, "-p", "const [a, b] = process.versions.node.split('.').map(Number); a > 24 || a == 24 && b >= 5 || a == 22 && b >= 21").Output()
		if err == nil && strings.TrimSpace(string(out)) == "true" {
			return path
		}
	}
	return ""
}

func cargoProject(t *testing.T, w *world) {
	t.Helper()
	for _, dir := range []string{"cargo/.cargo", "cargo/src"} {
		if err := os.MkdirAll(filepath.Join(w.tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, "cargo/Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntiny = { version = \"1\", registry = \"origin\" }\n")
	w.write(t, "cargo/.cargo/config.toml", "[registries.origin]\nindex = \"sparse+https://ORIGIN/cargo/\"\n")
	w.write(t, "cargo/src/lib.rs", "")
}

func javaProject(t *testing.T, w *world) {
	t.Helper()
	w.write(t, "Fetch.java", `public class Fetch { public static void main(String[] a) throws Exception {
	try (var in = new java.net.URL(a[0]).openStream()) { System.out.write(in.readAllBytes()); System.out.flush(); } } }`)
	cmd := exec.Command("keytool", "-importcert", "-noprompt", "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "origins", "-file", "ca.pem", "-keystore", "trust.p12")
	cmd.Dir = w.tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("keytool: %v\n%s", err, out)
	}
}

// copySelf puts the test binary into the worktree.
func copySelf(t *testing.T, w *world) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(w.tree, "self"), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// try runs the client at both hosts.
func (c client) try(t *testing.T, w *world) {
	t.Helper()
	if c.files != nil {
		c.files(t, w)
	}
	host := allowedHost
	if c.allowed != "" {
		host = c.allowed
	}
	const mark = "--- again"
	if c.again != "" {
		c.script += "\necho " + mark + "\nif " + strings.ReplaceAll(c.again, "HOST", deniedHost) + "; then exit 99; fi"
	}
	got := w.run(t, c, host)
	if got.code != 0 || !strings.Contains(got.out, c.want) {
		t.Errorf("at %s: status %d, want 0 and %q in\n%s", host, got.code, c.want, got.out)
	}
	if _, after, both := strings.Cut(got.out, mark); both {
		got = result{after, 1}
	} else {
		got = w.run(t, c, deniedHost)
	}
	if got.code == 0 || !regexp.MustCompile(c.denied).MatchString(got.out) {
		t.Errorf("at %s: status %d, want another than 0 and %s in\n%s", deniedHost, got.code, c.denied, got.out)
	}
}
