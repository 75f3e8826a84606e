package nameattacks

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The test binary plays all parts: the tests; the launcher, with the guard in it, which is
// a process of its own so that it can be killed; the first program in the sandbox, which
// goes into the cage; the one that starts the attack and sees whether anything works after
// it; and the attack.
const (
	launchPart = "__launch"
	shimPart   = "__shim"
	wardenPart = "__warden"
	attackPart = "__attack"
	helperPart = "__helper"
)

// Places in the sandbox. In one of a launcher that is not ours they have other names.
var (
	inside  = place("WORK", "/w")       // the workspace
	again   = place("AGAIN", "/mnt")    // the same folder, once more
	home    = place("HOME", "/home/u")  // a private tree
	project = place("OTHER", home+"/p") // a second folder
	self    = place("SELF", "/self")    // the test binary

	// programs is where that sandbox has what was compiled from testdata.
	programs = place("PROGRAMS", "/c")
)

// placeEnv begins the variables that name places.
const placeEnv = "ATTACK_"

func place(name, usual string) string { return cmp.Or(os.Getenv(placeEnv+name), usual) }

// aliveName is the file by which the warden shows that the sandbox works still.
const aliveName = "alive"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "__") {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // what has a parent-death signal hangs on this thread
	part, args := os.Args[1], os.Args[2:]
	var err error
	code := 0
	switch part {
	case launchPart:
		code, err = launch(args[0])
	case shimPart:
		err = shim(args[0], args[1:])
	case wardenPart:
		err = warden(args)
	case attackPart:
		attackMain(args)
	case helperPart:
		err = helpers[args[0]](args[1:])
	}
	if err != nil {
		fmt.Println(brokenMark+part+":", err)
		code = 125
	}
	os.Exit(code)
}

// helpers are further processes of attacks.
var helpers = map[string]func(args []string) error{}

// help starts one in the background. What it prints is the attack's.
func help(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(self, append([]string{helperPart, name}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, cmd.Start()
}

// until is when a race ends.
var until time.Time

func attackMain(args []string) {
	runtime.UnlockOSThread()
	d, err := time.ParseDuration(args[1])
	if err != nil {
		panic(err)
	}
	until = time.Now().Add(d)
	a := program(args[0])
	if err := a.run(); err != nil && a.says == "" {
		fmt.Println("it failed:", err)
	} else if err != nil {
		fmt.Println(err)
	}
}

// warden starts the attack, and then does what is allowed.
func warden(args []string) error {
	cmd := exec.Command(self, append([]string{attackPart}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Whatever else was inherited the attack inherits, too.
	if err := cmd.Run(); err != nil {
		fmt.Println("it ended:", err)
	}
	if err := os.Chdir(inside); err != nil {
		return err
	}
	if err := os.WriteFile("."+aliveName, []byte(aliveName), 0o600); err != nil {
		return err
	}
	return os.Rename("."+aliveName, aliveName)
}
