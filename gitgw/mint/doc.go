// Package mint obtains tokens for pushes: from a GitHub App, from a fixed
// value, or from a command.
//
// A minter makes a token for one repository and one access at the moment it is
// needed and keeps none. What it cannot do, it says in words that fit git's
// output, as a *gitgw.MintError.
//
// A [Ledger] stands before a minter and remembers on disk which of its tokens
// live, so that the next process can revoke what a killed one left.
package mint
