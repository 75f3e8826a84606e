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

// elsewhereHost is allowed at a port that no transparent listener has.
const elsewhereHost = "elsewhere.example"

// unaware takes away all that tells a client of the proxies, and holds it to a minute: one
// that hangs ends with 124.
const unaware = `unset HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY http_proxy https_proxy all_proxy ftp_proxy no_proxy NODE_USE_ENV_PROXY GIT_SSH_COMMAND GIT_CONFIG_GLOBAL
exec timeout 60 `

// slow is what a client says that waited in vain.
var slow = regexp.MustCompile(`(?i)timed?[ -]?out|EAI_AGAIN|temporary failure`)

// bare is a client that knows of no proxy.
type bare struct {
	name  string
	needs []string
	// command is given a HOST; where that is allowed it prints want.
	command, want string
	lookup        bool // it connects to nothing
	port          string
}

func unawareClients() []bare {
	return []bare{
		{name: "getent hosts", needs: []string{"getent"}, command: "getent hosts HOST", want: "HOST", lookup: true},
		{name: "getent ahosts", needs: []string{"getent"}, command: "getent ahosts HOST", want: "STREAM", lookup: true},
		{name: "static Go", command: "./dial-go https://HOST/hello", want: "hello from HOST", port: "443"},
		{name: "static Go, plain HTTP", command: "./dial-go http://HOST/hello", want: "hello from HOST", port: "80"},
		{name: "static C", needs: []string{"gcc"}, command: "./dial-c HOST 80 /hello", want: "hello from HOST", port: "80"},
		{name: "curl", needs: []string{"curl"}, command: "curl -sS --cacert $SSL_CERT_FILE https://HOST/hello", want: "hello from HOST", port: "443"},
		{
			name: "node https", needs: []string{"node"},
			command: `node --use-openssl-ca -e 'require("https").get(process.argv[1], r => r.pipe(process.stdout)).on("error", e => { console.error(e); process.exit(1) })' https://HOST/hello`,
			want:    "hello from HOST", port: "443",
		},
		{
			name: "node fetch", needs: []string{"node"},
			command: `node --use-openssl-ca -e 'fetch(process.argv[1]).then(async r => console.log(await r.text())).catch(e => { console.error(e, e.cause); process.exit(1) })' https://HOST/hello`,
			want:    "hello from HOST", port: "443",
		},
		{
			name: "ssh -F none", needs: []string{"ssh"},
			command: `sh -c 'printf 0000 | ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null git@HOST "git-upload-pack tiny.git"'`,
			want:    "refs/heads/main", port: "22",
		},
	}
}

// tryUnaware is the matrix of clients that know of no proxy: names that the run looks up
// lead to the appliance, and it takes what comes as it takes a CONNECT. A name that is
// denied does not exist, and one that is allowed elsewhere is refused at these
// ports; neither makes a client wait.
func tryUnaware(t *testing.T, w *place) {
	t.Helper()
	why := buildDials(t, w)
	for _, c := range unawareClients() {
		t.Run(c.name, func(t *testing.T) {
			for _, need := range c.needs {
				if missing := lacks(need); missing != "" {
					t.Skipf("SKIPPED, NOT PASSED: %s", missing)
				}
			}
			if c.name == "static C" && why != "" {
				t.Skipf("SKIPPED, NOT PASSED: %s", why)
			}
			c.try(t, w)
		})
	}
}

// buildDials puts the static clients into the worktree, and says why there is none in C.
func buildDials(t *testing.T, w *place) string {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(w.Tree, "dial-go"), "./testdata/dial")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	out, err := exec.Command("gcc", "-static", "-w", "-o", filepath.Join(w.Tree, "dial-c"), "testdata/dial.c").CombinedOutput()
	if err != nil {
		return "no static program in C: " + err.Error() + " " + lastLine(out)
	}
	return ""
}

// try runs the client at each host.
func (c bare) try(t *testing.T, w *place) {
	t.Helper()
	at := func(host string) result {
		return w.run(t, client{script: unaware + c.command}, host)
	}
	got := at(allowedHost)
	if want := strings.ReplaceAll(c.want, "HOST", allowedHost); got.code != 0 || !strings.Contains(got.out, want) || len(got.denied) > 0 {
		t.Errorf("at %s: status %d, denied %q, want 0 and %q in\n%s", allowedHost, got.code, got.denied, want, got.out)
	}
	got = at(deniedHost)
	if got.code == 0 || got.code == 124 || slow.MatchString(got.out) {
		t.Errorf("at %s: status %d, want a failure at once, in\n%s", deniedHost, got.code, got.out)
	}
	if want := []string{deniedHost + " not_allowed"}; !slices.Equal(got.denied, want) {
		t.Errorf("at %s: the summary names %q as denied, want %q", deniedHost, got.denied, want)
	}
	if c.lookup {
		return
	}
	got = at(elsewhereHost)
	if got.code == 124 || slow.MatchString(got.out) || strings.Contains(got.out, "hello from") || strings.Contains(got.out, "refs/") {
		t.Errorf("at %s: status %d, want a failure at once, in\n%s", elsewhereHost, got.code, got.out)
	}
	if want := []string{elsewhereHost + ":" + c.port + " port_not_allowed"}; !slices.Equal(got.denied, want) {
		t.Errorf("at %s: the summary names %q as denied, want %q", elsewhereHost, got.denied, want)
	}
}
