// Package environ decides what of the caller's environment a run gets, and what is
// put beside it.
//
// A variable gets in because it is on a short list, or because the caller named it;
// never merely because it was there: secrets live in variables whose names nobody
// can list. The other mode, Strip, is for hosts that compose the environment
// themselves and want only the dangerous part taken out.
//
// Either way no variable passes that makes a program load code, read a
// configuration, or talk to a daemon of the host (see Dangerous).
package environ
