// Package pack looks into a git pack that lies in a file, gitformat-pack(5),
// without unpacking it: which commits and trees it holds, and what its blobs say.
//
// The bytes are a stranger's. One pass from front to back finds where each object
// begins and what it is; deltas are resolved afterwards, one at a time, from the
// file. What is kept in memory is bounded by [Limits]: a few words for each object,
// and single objects up to a size. All work is counted in bytes inflated, so that
// small packs that unfold into large ones end with an error instead of in an hour.
//
// Ids are computed, never believed. A pack whose checksum is wrong, that holds more
// or less than it says, or whose objects differ from their own sizes is an error:
// another reader could make something else of it.
package pack
