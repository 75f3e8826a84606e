// Package mint obtains tokens for pushes: from a GitHub App, from a fixed
// value, or from a command.
//
// A minter makes a token for one repository and one access at the moment it is
// needed and keeps none. What it cannot do, it says in words that fit git's
// output, as a *gitgw.MintError.
package mint
