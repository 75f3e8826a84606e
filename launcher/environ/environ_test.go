package environ

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func example() Run {
	return Run{
		Session: "run-1", Home: "/home/u", Dir: "/work", Runtime: "/run/user/1000",
		HTTP: "127.0.0.1:3128", SOCKS: "127.0.0.1:1080",
		Connect: "/run/postern/postern __connect", GitConfig: "/run/postern/gitconfig", ReadToken: "ghs_read",
	}
}

func build(t *testing.T, r Run) map[string]string {
	t.Helper()
	env, err := r.Build()
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if _, twice := vars[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		vars[name] = value
	}
	return vars
}

// Where no repository can have hooks cargo makes none, unless the caller wants it to.
func TestNoHooks(t *testing.T) {
	r := example()
	if got, there := build(t, r)[cargoVCS]; there {
		t.Errorf("with hooks: %q", got)
	}
	r.NoHooks = true
	if got := build(t, r)[cargoVCS]; got != "none" {
		t.Errorf("without hooks: %q", got)
	}
	r.Pass = []string{cargoVCS + "=git"}
	if got := build(t, r)[cargoVCS]; got != "git" {
		t.Errorf("as the caller says: %q", got)
	}
}

func TestWhatIsSet(t *testing.T) {
	got := build(t, example())
	want := map[string]string{
		"ALL_PROXY": "http://127.0.0.1:3128", "all_proxy": "http://127.0.0.1:3128",
		"FTP_PROXY": "http://127.0.0.1:3128", "ftp_proxy": "http://127.0.0.1:3128",
		"HTTP_PROXY": "http://127.0.0.1:3128", "http_proxy": "http://127.0.0.1:3128",
		"HTTPS_PROXY": "http://127.0.0.1:3128", "https_proxy": "http://127.0.0.1:3128",
		"NO_PROXY": "localhost,127.0.0.1,::1", "no_proxy": "localhost,127.0.0.1,::1",
		"POSTERN_SOCKS": "socks5h://127.0.0.1:1080", "POSTERN_SESSION": "run-1",
		"NODE_USE_ENV_PROXY": "1",
		"YARN_HTTP_PROXY":    "http://127.0.0.1:3128", "YARN_HTTPS_PROXY": "http://127.0.0.1:3128",
		"JAVA_TOOL_OPTIONS": javaProxies,
		"GH_TOKEN":          "ghs_read", "GITHUB_TOKEN": "ghs_read",
		"GIT_ASKPASS": "/bin/false", "SSH_ASKPASS": "/bin/false", "GIT_TERMINAL_PROMPT": "0",
		"GIT_CONFIG_SYSTEM": "/run/postern/gitconfig", "GIT_SSH_VARIANT": "ssh",
		"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o ControlMaster=no -o ControlPath=none -o ProxyCommand='/run/postern/postern __connect %h %p'",
		"HOME":            "/home/u", "PWD": "/work", "TMPDIR": "/tmp", "TMPPREFIX": "/tmp/zsh", "XDG_RUNTIME_DIR": "/run/user/1000",
		"PATH": defaultPath,
	}
	if !maps.Equal(got, want) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%s = %q, want %q", name, got[name], want[name])
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if _, ok := want[name]; !ok {
				t.Errorf("unexpected %s=%s", name, got[name])
			}
		}
	}
}

func TestAllProxy(t *testing.T) {
	for _, tc := range []struct {
		setting string
		want    string
		there   bool
	}{
		{"", "http://127.0.0.1:3128", true},
		{"http", "http://127.0.0.1:3128", true},
		{"socks", "socks5h://127.0.0.1:1080", true},
		{"off", "", false},
	} {
		t.Run("setting "+tc.setting, func(t *testing.T) {
			p, err := ParseAllProxy(tc.setting)
			if err != nil {
				t.Fatal(err)
			}
			r := example()
			r.AllProxy = p
			got := build(t, r)
			for _, name := range []string{"ALL_PROXY", "all_proxy"} {
				if v, there := got[name]; v != tc.want || there != tc.there {
					t.Errorf("%s = %q (%t), want %q (%t)", name, v, there, tc.want, tc.there)
				}
			}
			if got["POSTERN_SOCKS"] == "" {
				t.Error("POSTERN_SOCKS depends on the setting")
			}
		})
	}
	if _, err := ParseAllProxy("socks4"); err == nil {
		t.Error("an unknown value was taken")
	}
}

func TestWithoutTokenOrConfig(t *testing.T) {
	r := example()
	r.ReadToken, r.GitConfig = "", ""
	r.Host = []string{"GH_TOKEN=ghp_users_own", "GITHUB_TOKEN=ghp_users_own", "GIT_CONFIG_SYSTEM=/evil"}
	got := build(t, r)
	for _, name := range []string{"GH_TOKEN", "GITHUB_TOKEN", "GIT_CONFIG_SYSTEM"} {
		if v, there := got[name]; there {
			t.Errorf("%s=%s came from the caller", name, v)
		}
	}
}

// The strip list of SPEC section 2 and threat 26, name by name.
var mustNotPass = strings.Fields(`
	LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT ld_preload LD_ANYTHING
	DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH
	BASH_ENV ENV PERL5OPT PERL5LIB PYTHONPATH PYTHONSTARTUP PYTHONHOME NODE_OPTIONS NODE_EXTRA_CA_CERTS PERL_MM_OPT RUBYOPT
	GIT_SSH GIT_SSH_COMMAND GIT_EXEC_PATH GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_CONFIG_GLOBAL GIT_CONFIG_PARAMETERS
	GIT_DIR GIT_WORK_TREE GIT_TEMPLATE_DIR GIT_PROXY_COMMAND GIT_EXTERNAL_DIFF GIT_TRACE GIT_TRACE_CURL
	JAVA_TOOL_OPTIONS _JAVA_OPTIONS npm_config_script_shell NPM_CONFIG_REGISTRY
	SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO DBUS_SESSION_BUS_ADDRESS DOCKER_HOST XDG_CONFIG_HOME TMUX STY DISPLAY
	TICKETING_API_KEY GH_ENTERPRISE_TOKEN GLIBC_TUNABLES OPENSSL_CONF SSLKEYLOGFILE PROMPT_COMMAND SHELLOPTS PS4
	SOCKS_SERVER grpc_proxy POSTERN_RUN POSTERN_POLICY
	http_proxy HTTPS_PROXY all_proxy no_proxy no_grpc_proxy CARGO_HTTP_PROXY YARN_HTTPS_PROXY npm_config_proxy GLOBAL_AGENT_HTTP_PROXY
	DOTNET_STARTUP_HOOKS CORECLR_PROFILER_PATH PIP_CONFIG_FILE APT_CONFIG
`)

// byMerging may be named with a value, and are set by us as well.
var byMerging = set(javaOptions)

func TestStripList(t *testing.T) {
	for _, mode := range []Mode{Allow, Strip} {
		for _, name := range mustNotPass {
			for _, spelling := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
				if !Dangerous(spelling) {
					t.Errorf("%s is not on the list", spelling)
				}
			}
			r := example()
			r.Mode, r.Host = mode, []string{name + "=from-the-caller"}
			if v := build(t, r)[name]; v == "from-the-caller" {
				t.Errorf("mode %s: %s passed", mode, name)
			}
			r.Pass = []string{name + "=named"}
			if _, err := r.Build(); !byMerging[name] && (err == nil || !strings.Contains(err.Error(), name)) {
				t.Errorf("mode %s: naming %s gives %v, want an error that names it", mode, name, err)
			}
		}
	}
}

func TestWhatIsTakenOver(t *testing.T) {
	host := []string{
		"PATH=/opt/bin:/usr/bin", "TERM=xterm", "LANG=C.UTF-8", "LC_ALL=C", "TZ=UTC", "NO_COLOR=1", "USER=u",
		"GIT_AUTHOR_NAME=A B", "GIT_COMMITTER_EMAIL=a@example.com",
		"AWS_SECRET_ACCESS_KEY=secret", "FOO_TOKEN=secret", "ANTHROPIC_API_KEY=key", "EDITOR=vi",
		"BASH_FUNC_ls%%=() { evil; }", "=C:=x", "NOVALUE", "9x=1", "a b=c", "NUL=a\x00b",
	}
	shaping := []string{"PATH", "TERM", "LANG", "LC_ALL", "TZ", "NO_COLOR", "USER", "GIT_AUTHOR_NAME", "GIT_COMMITTER_EMAIL"}
	for _, tc := range []struct {
		name  string
		mode  Mode
		pass  []string
		there []string
		not   []string
	}{
		{"allow takes the list", Allow, nil, shaping, []string{"AWS_SECRET_ACCESS_KEY", "FOO_TOKEN", "ANTHROPIC_API_KEY", "EDITOR"}},
		{"the zero mode is allow", "", nil, shaping, []string{"FOO_TOKEN"}},
		{"named variables come along", Allow, []string{"ANTHROPIC_API_KEY"}, []string{"ANTHROPIC_API_KEY"}, []string{"FOO_TOKEN"}},
		{"a named variable that is not there is left out", Allow, []string{"NOT_SET"}, nil, []string{"NOT_SET"}},
		{"strip takes all but the dangerous", Strip, nil, append([]string{"AWS_SECRET_ACCESS_KEY", "EDITOR"}, shaping...), []string{"TICKETING_API_KEY"}},
		{"names that are no names never pass", Strip, nil, nil, []string{"BASH_FUNC_ls%%", "", "9x", "a b", "NUL", "NOVALUE"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := example()
			r.Mode, r.Host, r.Pass = tc.mode, host, tc.pass
			got := build(t, r)
			for _, name := range tc.there {
				if _, ok := got[name]; !ok {
					t.Errorf("%s is missing", name)
				}
			}
			for _, name := range tc.not {
				if v, ok := got[name]; ok {
					t.Errorf("%s=%s passed", name, v)
				}
			}
		})
	}
}

func TestPass(t *testing.T) {
	for _, tc := range []struct{ name, pass, variable, want string }{
		{"a value", "A=1", "A", "1"},
		{"an empty value", "A=", "A", ""},
		{"a value with =", "A=b=c", "A", "b=c"},
		{"over the list", "TERM=dumb", "TERM", "dumb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := example()
			r.Host, r.Pass = []string{"TERM=xterm"}, []string{tc.pass}
			if got := build(t, r); got[tc.variable] != tc.want {
				t.Errorf("%s = %q, want %q", tc.variable, got[tc.variable], tc.want)
			}
		})
	}
	for _, bad := range []string{"", "=x", "A B=1", "9=1", "A=\x00", "HTTP_PROXY=http://evil/", "HOME=/root"} {
		r := example()
		r.Pass = []string{bad}
		if _, err := r.Build(); err == nil {
			t.Errorf("pass %q was taken", bad)
		}
	}
}

func TestAnEmptyPathIsReplaced(t *testing.T) {
	r := example()
	r.Host = []string{"PATH="}
	if got := build(t, r)["PATH"]; got != defaultPath {
		t.Errorf("PATH = %q", got)
	}
}

// Whatever the caller's environment holds, what we set is what the run gets, and
// nothing dangerous that we did not set is there.
func TestCallerNeverWins(t *testing.T) {
	ours := build(t, example())
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.SampledFrom(mustNotPass),
			rapid.SampledFrom(slices.Sorted(maps.Keys(ours))),
			rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,12}`),
		)
		r := example()
		r.Mode = rapid.SampledFrom([]Mode{Allow, Strip}).Draw(t, "mode")
		for range rapid.IntRange(0, 20).Draw(t, "count") {
			r.Host = append(r.Host, name.Draw(t, "name")+"=caller")
		}
		env, err := r.Build()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(env) {
			t.Fatal("not sorted")
		}
		for _, kv := range env {
			n, v, _ := strings.Cut(kv, "=")
			if want, set := ours[n]; set && n != "PATH" && v != want {
				t.Fatalf("%s = %q, want ours", n, v)
			} else if !set && Dangerous(n) {
				t.Fatalf("%s passed", n)
			}
		}
	})
}

// Where names can be asked for is said where no file of the system says it.
func TestNameserver(t *testing.T) {
	e := example()
	e.Nameserver = "127.0.0.1:5353"
	if got := build(t, e)["POSTERN_NAMESERVER"]; got != e.Nameserver {
		t.Errorf("got %q", got)
	}
	if _, set := build(t, example())["POSTERN_NAMESERVER"]; set {
		t.Error("it is set without one")
	}
}
