package environ

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const javaProxies = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]"

func TestJavaOptions(t *testing.T) {
	for _, tc := range []struct{ name, host, pass, want string }{
		{"none", "", "", javaProxies},
		{"the host's are not taken over", "-Xmx1g", "", javaProxies},
		{"named, and not there", "", "JAVA_TOOL_OPTIONS", javaProxies},
		{"named", "-Xmx1g", "JAVA_TOOL_OPTIONS", "-Xmx1g " + javaProxies},
		{"given", "-Xmx1g", "JAVA_TOOL_OPTIONS=-Xmx2g -Da='b c'", "-Xmx2g -Da='b c' " + javaProxies},
		{"a proxy of the user comes first, so that ours counts", "", "JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=evil", "-Dhttp.proxyHost=evil " + javaProxies},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, mode := range []Mode{Allow, Strip} {
				r := example()
				r.Mode = mode
				if tc.host != "" {
					r.Host = []string{javaOptions + "=" + tc.host}
				}
				if tc.pass != "" {
					r.Pass = []string{tc.pass}
				}
				if got := build(t, r)[javaOptions]; got != tc.want {
					t.Errorf("mode %s: got %q, want %q", mode, got, tc.want)
				}
			}
		})
	}
	for _, option := range []string{
		"-javaagent:/x.jar", "-agentlib:jdwp=transport=dt_socket", "-agentpath:/x.so", "-Xrunjdwp:x", "-Xbootclasspath/a:/x", "-XX:OnError=/x", "-XX:OnOutOfMemoryError='/x y'",
		"-XX:Flags=/x", "-XX:VMOptionsFile=/x", "--patch-module=java.base=/x", "-Djava.system.class.loader=X", "-Djava.class.path=/x", "@/x",
		"'-java'agent:/x.jar", `"-javaagent:/x y.jar"`, "-Xmx1g\t-javaagent:/x", "-Xmx1g\n-javaagent:/x", "'' -javaagent:/x", "'unclosed", `a"b'`,
	} {
		r := example()
		r.Pass = []string{javaOptions + "=" + option}
		if _, err := r.Build(); err == nil || !strings.Contains(err.Error(), javaOptions) {
			t.Errorf("%q: got %v", option, err)
		}
	}
}

func TestJavaWords(t *testing.T) {
	for in, want := range map[string][]string{
		"":                 nil,
		"  ":               nil,
		"a b":              {"a", "b"},
		" a\tb\nc\rd\ve\f": {"a", "b", "c", "d", "e"},
		`a'b c'd "e 'f"`:   {"ab cd", "e 'f"},
		`''`:               {""},
		`a\ b`:             {`a\`, "b"},
	} {
		if got, whole := javaWords(in); !slices.Equal(got, want) || !whole {
			t.Errorf("%q: got %q", in, got)
		}
	}
}

// However it is quoted, an agent does not get in.
func TestNoAgentHidesInQuotes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString(rapid.SampledFrom([]string{"", "-Xmx1g ", "'a b' ", "x\t"}).Draw(t, "before"))
		for _, c := range "-javaagent:/x.jar" {
			quote := rapid.SampledFrom([]string{"", "'", `"`}).Draw(t, "quote")
			b.WriteString(quote + string(c) + quote)
		}
		if err := checkJava(b.String()); err == nil {
			t.Fatalf("%q was taken", b.String())
		}
	})
}
