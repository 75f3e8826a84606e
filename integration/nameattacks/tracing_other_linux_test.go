//go:build linux && !amd64

package nameattacks

// A tracer knows the registers of one machine.
var tracing []attack
