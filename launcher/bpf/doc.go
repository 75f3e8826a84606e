// Package bpf writes filters of system calls, as seccomp(2) takes them: programs of
// classic BPF over struct seccomp_data.
package bpf
