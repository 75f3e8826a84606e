// Package namework does real work in a run whose names are guarded, and the same work outside
// of any sandbox, in the same folder: what either leaves on the disk, and says, is the same.
// Contents, modes, links and hard links are compared; times are not, nor files that hold
// times or inode numbers.
//
// The launcher is built and started as a user starts it. What a tool needs that this machine
// lacks is skipped by name. POSTERN_NAMEWORK=all, as make namework has it, does the larger
// sizes.
package namework
