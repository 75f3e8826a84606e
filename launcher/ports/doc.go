// Package ports leads connections into a sandbox and out of it, past the proxies: those
// that the user declared, and no others.
//
// A published port is a listener on the host's loopback (or where the user says) whose
// connections end at a port inside, as a browser needs it to see a development server.
// A granted port is a listener inside whose connections end at a port of the host's
// loopback, as a test needs it to reach a database. The launcher carries the bytes; the
// sandbox only lends sockets of its network.
package ports
