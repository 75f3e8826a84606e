// Package doors tries every door to the forge from inside a real run: the spellings
// of its address, plain HTTP, SSH, git without the run's configuration, and clients
// that know no pushInsteadOf. Either the push goes through the gateway, or it ends at
// the forge with a read token, or it does not leave the run.
package doors
