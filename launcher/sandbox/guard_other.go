//go:build !linux

package sandbox

// canGuard: no broker guards names on this system.
func canGuard(string, []string) (bool, error) { return false, nil }
