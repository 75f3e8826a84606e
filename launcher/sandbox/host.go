package sandbox

import (
	"errors"
	"os"

	"postern/launcher/backend"
)

// release is the kernel's, as Options say or as it is; empty where there is none to read.
func (o Options) release() string {
	if o.Release != "" {
		return o.Release
	}
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return string(text)
}

// blame corrects why a start failed where the host itself is the reason: the first
// Windows subsystem has Linux's system calls and no namespaces. Whatever else is in the
// way there, a missing package too, is not worth mending. It is asked when something has
// failed, for it would cost every start a little.
func (o Options) blame(err error) error {
	if _, ok := errors.AsType[*Refusal](err); !ok || !backend.WSL1(o.release()) {
		return err
	}
	return &Refusal{Reason: ReasonWSL1, Detail: "WSL 1 has no namespaces", Cure: "convert the distribution, in Windows: wsl --set-version NAME 2"}
}
