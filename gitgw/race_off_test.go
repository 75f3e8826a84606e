//go:build !race

package gitgw_test

// raceEnabled says that memory is measured under the race detector, which
// multiplies it.
const raceEnabled = false
