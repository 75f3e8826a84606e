package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"postern/launcher/backend"
	"postern/launcher/sandbox"
)

// Reasons for which a backend is refused.
const (
	reasonBackend sandbox.Reason = "backend_unavailable"
	reasonWrap    sandbox.Reason = "backend_cannot_wrap"
)

// choice is which backend a host's run gets.
type choice struct {
	Backend backend.Backend

	// Strict: no other will do. Otherwise native may turn out to be none.
	Strict bool

	// Line says that it is another than was preferred; empty: it is not.
	Line string
}

// choose decides from what was asked for. named is what somebody asked for by name,
// empty if nobody did; preferred is what the host takes otherwise.
//
// A name is a demand: it is met or refused (SPEC 9). A virtual machine cannot wrap a
// command of the host, so that one is always refused here (SPEC 8, 12). A preference
// steps down, and says so (SPEC 10). Off is a decision that nothing else overrides
// (SPEC 27).
func choose(off bool, named, preferred backend.Backend) (choice, error) {
	switch {
	case off:
		return choice{Backend: backend.None, Strict: true, Line: backend.StartLine(true, false, "", "")}, nil
	case named == "" && preferred == backend.MicroVM:
		return choice{Backend: backend.Native, Line: "no virtual machine can be started by this build: the preferred backend microvm steps down to native"}, nil
	case named == "" && preferred == backend.None:
		return choice{Backend: backend.None, Strict: true}, nil
	case named == "":
		return choice{Backend: backend.Native}, nil
	case !named.Wraps():
		return choice{}, &sandbox.Refusal{
			Reason: reasonWrap, Detail: fmt.Sprintf("the backend %s cannot wrap a command of the host, and this build starts none", named),
			Cure: "ask for native",
		}
	}
	return choice{Backend: named, Strict: true}, nil
}

// mayStepDown reports whether err is of the kind that a host without a sandbox has: of
// the system, not of what was asked of it, and lasting. What is used up at the moment may
// have been used up by a run, which would have the next one without a sandbox.
func mayStepDown(err error) bool {
	r, ok := errors.AsType[*sandbox.Refusal](err)
	if !ok {
		return false
	}
	switch r.Reason {
	case sandbox.ReasonUnsupportedOS, sandbox.ReasonUnsupportedArch, sandbox.ReasonWSL1,
		sandbox.ReasonMissing, sandbox.ReasonTooOld, sandbox.ReasonNamespaces,
		sandbox.ReasonAppArmor, sandbox.ReasonProc, sandbox.ReasonSeccomp:
		return true
	case sandbox.ReasonExhausted:
		return noNamespaces("/proc/sys/user")
	default:
		// Untrusted tools, mounts that fail, protocols that are not kept: something is
		// there, and wrong. That is no host without a sandbox. macOS always has one.
		return false
	}
}

// noNamespaces reports whether the limits in dir leave nobody any namespaces of a kind
// that a sandbox needs.
func noNamespaces(dir string) bool {
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		text, err := os.ReadFile(dir + "/max_" + kind + "_namespaces")
		if err == nil && strings.TrimSpace(string(text)) == "0" {
			return true
		}
	}
	return false
}
