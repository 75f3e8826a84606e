// Package local talks to programs on this host, over HTTP and JSON: one POST, one
// strict answer. What such programs are asked names what people work on, so an
// address that could be another machine's is not taken.
package local
