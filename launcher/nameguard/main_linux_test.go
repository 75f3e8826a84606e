package nameguard

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The test binary plays three parts: the tests, the first program in a sandbox, which goes
// into the cage, and the hostile command inside.
const (
	shimCommand  = "__shim"
	enemyCommand = "__enemy"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case shimCommand:
			syscall.Exit(shim(os.Args[2], os.Args[3:]))
		case enemyCommand:
			syscall.Exit(enemy(os.Args[2], os.Args[3:]))
		}
	}
	goleak.VerifyTestMain(m)
}

// shim does what PID 1 of a real sandbox does on the thread that the command comes from.
func shim(config string, argv []string) int {
	runtime.LockOSThread()
	var c struct {
		Cage
		Lacks string
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return complain(err)
	}
	if err := takeAway(c.Lacks); err != nil {
		return complain(err)
	}
	caged, err := c.Close()
	if err != nil {
		return complain(err)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(caged.Listener, caged.Root), nil, 0); err != nil {
		return complain(err)
	}
	caged.Drop()
	_ = unix.Close(3)
	if err := caged.Prove(); err != nil {
		return complain(err)
	}
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/u", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GORACE=atexit_sleep_ms=0"}
	return complain(syscall.Exec(argv[0], argv, env))
}

const shimFailed = 125

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "shim:", err)
	return shimFailed
}

// enemy runs one of the hostile programs, which print what they have to say.
func enemy(name string, args []string) int {
	do := enemies[name]
	if do == nil {
		fmt.Println("no such enemy:", name)
		return 2
	}
	if err := do(args); err != nil {
		fmt.Println(strings.TrimSpace(err.Error()))
		return 1
	}
	return 0
}

var enemies = map[string]func(args []string) error{}
