// Package bpftest runs filters of system calls in tests, where the kernel would.
package bpftest
