package gitgw_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// chopEnv makes the gateway of every scenario read and write eight bytes at a time.
const chopEnv = "GITGW_TEST_CHOP"

// tooLarge are the cases that are about size: 20 MB and more, of which eight bytes at
// a time say nothing that the others do not.
var tooLarge = []string{"E02", "E03", "G10", "G11", "M02", "M05"}

// TestEightBytes runs every case again, between a client and a gateway that pass each
// other eight bytes at a time: no packet, head, line or id comes in one piece, and none
// with what follows it.
func TestEightBytes(t *testing.T) {
	if testing.Short() || os.Getenv(chopEnv) != "" {
		t.Skip("runs every case again")
	}
	t.Parallel()
	var names []string
	for _, file := range mustGlob(t, "*_test.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range ownTest.FindAllStringSubmatch(string(text), -1) {
			if id := found[1]; !slices.Contains(tooLarge, id) && !slices.Contains(names, id) {
				names = append(names, id)
			}
		}
	}
	if len(names) < 60 {
		t.Fatalf("only %d cases found: %v", len(names), names)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^Test("+strings.Join(names, "|")+"|G)$", "-test.v", "-test.count=1", "-test.parallel=2")
	cmd.Env = append(os.Environ(), chopEnv+"=8")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	passed := regexp.MustCompile(`(?m)^--- PASS: Test\w+`).FindAllString(out.String(), -1)
	skipped := regexp.MustCompile(`(?m)^--- SKIP: Test\w+`).FindAllString(out.String(), -1)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	if len(passed)+len(skipped) < len(names) {
		t.Errorf("%d of %d cases passed, %d skipped", len(passed), len(names), len(skipped))
	}
	t.Logf("%d cases passed, %d skipped", len(passed), len(skipped))
}

// chopped makes every connection of ln slow of speech and hearing, where the test is
// run so.
func chopped(ln net.Listener) net.Listener {
	if os.Getenv(chopEnv) == "" {
		return ln
	}
	return choppedListener{ln}
}

type choppedListener struct{ net.Listener }

func (l choppedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return choppedConn{c}, nil
}

// choppedConn hides ReadFrom and WriteTo of the connection, too.
type choppedConn struct{ net.Conn }

const chop = 8

func (c choppedConn) Read(p []byte) (int, error) { return c.Conn.Read(p[:min(len(p), chop)]) }

func (c choppedConn) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m, err := c.Conn.Write(p[n:min(len(p), n+chop)])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
