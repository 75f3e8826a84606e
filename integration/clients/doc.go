// Package clients tries the clients that an agent uses in a real run: the appliance,
// the launcher and bubblewrap as they are shipped, origins that answer for any public
// address, and each client twice: at a host that the policy allows, where it must work,
// and at one that it does not, where it must fail and say why.
//
// Clients that know of no proxy, or were told of none, are tried as well: they look names
// up and dial what they get.
//
// A client that this machine lacks is skipped by name. `make clients` installs them all
// first, and fails where one is missing.
package clients
