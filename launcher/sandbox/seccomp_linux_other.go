//go:build linux && !amd64 && !arm64

package sandbox

// archToken zero: the filter is written for two architectures, and a run without one
// is refused.
const archToken uint32 = 0
