// Package integration tests Postern as its users meet it: the two binaries,
// real git, real bubblewrap, real curl, and the shape of the repository itself.
//
// It holds tests only. The equipment they share is in the folders below:
// fakegithub (a git server with GitHub's App API), netlab (a private network in
// which every address is local), conform (replays case files against a running
// appliance) and demo (what `make demo` runs).
package integration
