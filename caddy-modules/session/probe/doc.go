// Package probe says what sandbox this host offers, to programs that ask the appliance.
//
// The appliance itself puts up no sandbox. It has the launcher do that, once in the life
// of the process (SPEC 15): `postern probe --json` really starts one. The answer is kept,
// logged in one line (SPEC 20), and served on the control socket.
package probe
