package environ

import "strings"

// Variables that change what a program loads or runs before its first own line, or
// that lead to a daemon, a credential or a proxy of the host (SPEC 113 and section 2,
// threat 26). Names are compared in upper case, because some readers do.
var dangerousPrefixes = []string{
	"LD_", "DYLD_", // dynamic linkers
	"BASH_FUNC_",  // exported functions
	"GIT_CONFIG",  // GIT_CONFIG_COUNT, _KEY_0, _GLOBAL, _PARAMETERS …
	"GIT_TRACE",   // writes what git does, tokens included, to a file of choice
	"NPM_CONFIG_", // npm reads any setting from here, script-shell included
	"PERL5", "PERL_MM_",
	"MALLOC_", "GLIBC_", // GLIBC_TUNABLES
	"CORECLR_", "COR_", // .NET profilers, which are libraries
	"DBUS_", "SYSTEMD_", "DOCKER_", "CONTAINER_", "KUBERNETES_", "PODMAN_",
	"SSH_", "GPG_", "GNUPG", "XDG_", "VSCODE_", "TMUX", "SCREEN",
	"POSTERN_", // ours, of the host's side
}

var dangerousNames = set(
	"ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "PROMPT_COMMAND", "PS4", "IFS", "CDPATH", "GLOBIGNORE", "ZDOTDIR", "FPATH",
	"NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "NODE_PATH", "NODE_REPL_EXTERNAL_MODULE",
	"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "MAVEN_OPTS", "GRADLE_OPTS", "SBT_OPTS", "ANT_OPTS", "JRUBY_OPTS",
	"DOTNET_STARTUP_HOOKS", "BUN_OPTIONS", "ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS", "ELIXIR_ERL_OPTIONS",
	"R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER", "JULIA_LOAD_PATH", "GUILE_LOAD_PATH", "EMACSLOADPATH", "VIMINIT", "EXINIT",
	"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_EXTERNAL_DIFF",
	"GIT_PROXY_COMMAND", "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PAGER", "GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "GIT_ALLOW_PROTOCOL",
	"GIT_PROTOCOL_FROM_USER", "GIT_CEILING_DIRECTORIES", "GIT_ATTR_SOURCE", "GIT_ATTR_NOSYSTEM",
	"PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONBREAKPOINT",
	"PYTHONEXECUTABLE", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONCASEOK", "RUBYOPT", "RUBYLIB", "RUBYSHELL",
	"GCONV_PATH", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF", "NLSPATH", "LOCPATH", "GETCONF_DIR", "NIS_PATH", "TZDIR",
	"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSLKEYLOGFILE", "CURL_HOME", "WGETRC", "NETRC",
	"RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "GOFLAGS", "GOENV", "GOTOOLDIR", "GODEBUG",
	"LUA_INIT", "LUA_PATH", "LUA_CPATH", "PHPRC", "PHP_INI_SCAN_DIR", "MAKEFLAGS", "MAKEFILES", "GNUMAKEFLAGS",
	"LESSOPEN", "LESSCLOSE", "MANOPT", "INPUTRC", "TERMINFO", "TERMINFO_DIRS", "TERMCAP",
	"TMPDIR", "TMP", "TEMP", "TMPPREFIX", "HOME", "PWD", "OLDPWD", "MAIL", "STY", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY",
	// Credentials that the run gets its own of, or none.
	"GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_CONFIG_DIR", "GH_HOST", "TICKETING_API_KEY",
	"SOCKS_SERVER", "SOCKS5_SERVER", "PIP_CONFIG_FILE", "APT_CONFIG",
)

// proxySuffix ends the names of proxies, and of what goes past them: HTTPS_PROXY,
// CARGO_HTTP_PROXY, no_grpc_proxy and whatever else there may be. Those of the host
// would be unreachable, or a way past ours.
const proxySuffix = "_PROXY"

// Dangerous reports whether a variable of that name may never be taken over.
func Dangerous(name string) bool {
	upper := strings.ToUpper(name)
	if dangerousNames[upper] || strings.HasSuffix(upper, proxySuffix) {
		return true
	}
	for _, prefix := range dangerousPrefixes {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return false
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, name := range names {
		m[name] = true
	}
	return m
}
