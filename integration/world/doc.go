// Package world has the two sides of a test that starts the launcher here, as a user
// does, and the appliance with the Internet around it in a namespace of package netlab.
// The sides share a folder, and in it the run directory with the appliance's sockets.
//
// The test binary is both: outside, Start runs the calling test again inside the
// namespace, where the test finds the folder with Dir, puts up its origins, starts
// the Appliance, and says so with Ready.
package world
