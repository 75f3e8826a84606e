//go:build linux

package clients

import (
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
	needs []string // see missing
	files func(*testing.T, *place)
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
	looksUp bool   // the name, besides leaving it to the proxy: both are refused
}

// reason is what the status line of a refused CONNECT says, and clients show.
const reason = `denied\.example:\d+ is refused: no rule allows it`

// code is what clients show that keep the words of the status line to themselves.
const code = `\b403\b`

// npmProject is a folder to install into, for programs of node, which know the
// certificates of one variable of their own.
const npmProject = "export NODE_EXTRA_CA_CERTS=$SSL_CERT_FILE; mkdir /tmp/n; cd /tmp/n; echo '{}' >package.json\n"

func matrix() []client {
	return []client{
		{name: "curl", needs: []string{"curl"}, script: "curl -sS https://HOST/hello", want: "hello from allowed.example", denied: code},
		{name: "curl, plain HTTP", needs: []string{"curl"}, script: "curl -sS --fail-with-body http://HOST/hello", want: "hello from allowed.example", denied: reason},
		{name: "git over HTTPS", needs: []string{"git"}, script: "GIT_SSL_CAINFO=$SSL_CERT_FILE git clone -q https://HOST/git/tiny.git /tmp/tiny && git -C /tmp/tiny log --format=%s", want: "tiny", denied: code},
		{name: "git over SSH", needs: []string{"git", "ssh"}, script: "git clone -q git@HOST:tiny.git /tmp/tiny && git -C /tmp/tiny log --format=%s", want: "tiny", denied: "denied by the policy"},
		{name: "ssh", needs: []string{"ssh"}, script: `printf 0000 | ssh -o BatchMode=yes git@HOST "git-upload-pack 'tiny.git'"`, want: "refs/heads/main", denied: "denied by the policy"},
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
			name: "node fetch", needs: []string{node}, binds: npmFolder(),
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
		{
			name: "pnpm", needs: []string{node, "npm:pnpm"}, binds: npmFolder(),
			script: npmProject + nodeProgram() + ` ` + fromNPM("pnpm/bin/pnpm.cjs") + ` add --fetch-retries 0 --registry https://HOST/npm/ tiny; cat node_modules/tiny/index.js`, want: "module.exports = 'tiny'", denied: reason,
		},
		{
			name: "yarn from 2 on", needs: []string{node, "npm:@yarnpkg/cli-dist"}, binds: npmFolder(),
			script: npmProject + `export YARN_NPM_REGISTRY_SERVER=https://HOST/npm YARN_ENABLE_TELEMETRY=0 YARN_HTTP_RETRY=0 YARN_NODE_LINKER=node-modules YARN_NPM_MINIMAL_AGE_GATE=0
` + nodeProgram() + ` ` + fromNPM("@yarnpkg/cli-dist/bin/yarn.js") + ` add tiny; cat node_modules/tiny/index.js`, want: "module.exports = 'tiny'", denied: code,
		},
		{
			name: "bun", needs: []string{"npm:@oven/bun-linux-*"}, binds: npmFolder(),
			script: npmProject + fromNPM("@oven/bun-linux-*/bin/bun") + ` -e 'console.log(await (await fetch("https://HOST/hello")).text())'`, want: "hello from allowed.example", denied: "refused|403",
		},
		{
			name: "deno", looksUp: true, needs: []string{"npm:@deno/linux-*"}, binds: npmFolder(),
			script: `echo 'console.log(await (await fetch("https://HOST/hello")).text())' | ` + fromNPM("@deno/linux-*/deno") + ` run --allow-all --cert $SSL_CERT_FILE -`, want: "hello from allowed.example", denied: "refused|403|tunnel",
		},
		{name: "uv", absent: "no registry that this project installs from has it, PyPI alone"},
		{name: "wget", needs: []string{"wget"}, script: "wget -nv --ca-certificate=$SSL_CERT_FILE -O - https://HOST/hello", want: "hello from allowed.example", denied: reason},
		{name: "gRPC in Go", files: copySelf, script: "./self " + grpcCommand + " HOST:443", want: "SERVING", denied: reason},
		{
			name: "gRPC in Python, over the C core", needs: []string{"python3:grpc"},
			script: `/usr/bin/python3 -c 'import grpc, os, sys
ch = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(open(os.environ["SSL_CERT_FILE"], "rb").read()))
print(ch.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30))' HOST:443`, want: `b'\x08\x01'`, denied: code,
		},
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

func cargoProject(t *testing.T, w *place) {
	t.Helper()
	for _, dir := range []string{"cargo/.cargo", "cargo/src"} {
		if err := os.MkdirAll(filepath.Join(w.Tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.write(t, "cargo/Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ntiny = { version = \"1\", registry = \"origin\" }\n")
	w.write(t, "cargo/.cargo/config.toml", "[registries.origin]\nindex = \"sparse+https://ORIGIN/cargo/\"\n")
	w.write(t, "cargo/src/lib.rs", "")
}

func javaProject(t *testing.T, w *place) {
	t.Helper()
	w.write(t, "Fetch.java", `public class Fetch { public static void main(String[] a) throws Exception {
	try (var in = new java.net.URL(a[0]).openStream()) { System.out.write(in.readAllBytes()); System.out.flush(); } } }`)
	cmd := exec.Command("keytool", "-importcert", "-noprompt", "-storetype", "PKCS12", "-storepass", "changeit", "-alias", "origins", "-file", "ca.pem", "-keystore", "trust.p12")
	cmd.Dir = w.Tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("keytool: %v\n%s", err, out)
	}
}

// copySelf puts the test binary into the worktree.
func copySelf(t *testing.T, w *place) {
	t.Helper()
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(w.Tree, "self"), data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// try runs the client at both hosts.
func (c client) try(t *testing.T, w *place) {
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
		got.out, got.code = after, 1
	} else {
		got = w.run(t, c, deniedHost)
	}
	port := "443"
	switch {
	case strings.Contains(c.name, "plain"):
		port = "80"
	case strings.Contains(strings.ToLower(c.name), "ssh"):
		port = "22"
	}
	want := []string{deniedHost + ":" + port + " not_allowed"}
	if c.looksUp {
		want = append([]string{deniedHost + " not_allowed"}, want...)
	}
	if !slices.Equal(got.denied, want) {
		t.Errorf("at %s: the summary names %q as denied, want %q", deniedHost, got.denied, want)
	}
	if got.code == 0 || !regexp.MustCompile(c.denied).MatchString(got.out) {
		t.Errorf("at %s: status %d, want another than 0 and %s in\n%s", deniedHost, got.code, c.denied, got.out)
	}
}
