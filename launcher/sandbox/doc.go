// Package sandbox starts one command where it sees what it was given and nothing
// else, and reports how it ended.
//
// The way from what a run may do to a running command has four steps, each of
// which can be tested without the next:
//
//	Profile   what the caller asks for: folders, mode, home, ports
//	Gather    looks at the disk: symlinks resolved, protected names found    -> Facts
//	Plan      pure: the ordered mounts                                      -> []Mount
//	Start     bubblewrap, run directly by absolute path                     -> *Process
//
// Plan orders every mount by depth, parents first, because bubblewrap applies its
// options left to right and a parent mounted late opens what a child had closed.
//
// Mounts hold what exists. The names by which a git directory redirects git are a closed
// set, so Start makes those that are missing, as placeholders that change nothing for
// git, and the last run in that directory removes them. A launcher that is killed leaves
// them; the next run that may write the folder removes them. Other names that did not
// exist (.env*, a new .git) can be made, and Inspect judges them when the run has ended.
// A file that is replaced from outside loses its mask: Watch says so at once.
//
// On Linux there are two processes of ours. The launcher stays outside. The other,
// Init, is the same binary, bound read-only into the sandbox, and its PID 1: it
// makes the two listeners inside the new network namespace and hands them out over
// an inherited socket (SCM_RIGHTS), waits for the environment and the command over
// the same socket, so that neither stands in anybody's argv, checks that the mounts
// are the ones that were planned, runs the command, passes signals on, reaps, and
// says how the command ended. bubblewrap could have been PID 1 itself, but its
// reaper runs without the seccomp filter and may be traced by the command: a way
// past the filter. Init is filtered like everything else and not traceable.
//
// Init also hands out bare sockets of the new network, on request. The launcher binds
// or connects them: it owns the user namespace, and with it every capability over that
// network, ports below 1024 included, while nobody inside has any.
//
// What cannot be had is refused with a Refusal that names its reason; nothing is
// ever started with less than what was asked for.
package sandbox
