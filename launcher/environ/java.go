package environ

import (
	"fmt"
	"net"
	"strings"
)

// javaOptions is read by every Java virtual machine, whoever starts it. Java knows no
// proxy variable, only system properties.
const javaOptions = "JAVA_TOOL_OPTIONS"

// loaders are options that make a virtual machine load code, run a program or read more
// options, before the program that was asked for. They are compared without case:
// property names have it, and a misspelt one does nothing.
var loaders = []string{
	"-javaagent", "-agentlib", "-agentpath", "-xrun", "-xbootclasspath", "-xdebug",
	"-xx:onerror", "-xx:onoutofmemoryerror", "-xx:flags", "-xx:vmoptionsfile", "-xx:sharedarchivefile", "-xx:aotcache", "-xx:aotlibrary",
	"--patch-module", "--upgrade-module-path", "--module-path", "--class-path", "-cp", "-classpath",
	"-djava.class.path", "-djava.system.class.loader", "-djdk.module", "-djava.security.properties", "-djava.library.path", "-dsun.boot",
	"@",
}

// checkJava refuses options that load code. The rest, memory sizes mostly, is kept.
func checkJava(value string) error {
	words, whole := javaWords(value)
	if !whole {
		return fmt.Errorf("pass variable %s: a quote is not closed", javaOptions)
	}
	for _, option := range words {
		lower := strings.ToLower(option)
		for _, loader := range loaders {
			if strings.HasPrefix(lower, loader) {
				return fmt.Errorf("pass variable %s: %s makes Java load code or run a program before the one that was asked for", javaOptions, option)
			}
		}
	}
	return nil
}

// javaWords splits options as a virtual machine does: at white space, quotes keep it,
// and there is no escape. whole is false where a quote has no end.
func javaWords(value string) (words []string, whole bool) {
	var word strings.Builder
	var quote byte
	begun := false
	for i := range len(value) {
		c := value[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case c == ' ' || '\t' <= c && c <= '\r':
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, quote == 0
}

// java appends the proxies to given: the last of two equal properties counts. What is
// reached without a proxy is what NO_PROXY names.
func (r *Run) java(given string) string {
	host, port, err := net.SplitHostPort(r.HTTP)
	if err != nil {
		return given
	}
	ours := fmt.Sprintf("-Dhttp.proxyHost=%s -Dhttp.proxyPort=%s -Dhttps.proxyHost=%[1]s -Dhttps.proxyPort=%[2]s -Dhttp.nonProxyHosts=localhost|127.0.0.1|[::1]", host, port)
	return strings.TrimSpace(given + " " + ours)
}
