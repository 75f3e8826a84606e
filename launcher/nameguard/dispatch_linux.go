package nameguard

// call is a system call that comes to the broker.
type call uint8

const (
	callNone call = iota
	callOpen
	callCreat
	callOpenat
	callOpenat2
	callTruncate
	callMkdir
	callMkdirat
	callMknod
	callMknodat
	callSymlink
	callSymlinkat
	callLink
	callLinkat
	callRename
	callRenameat
	callRenameat2
	callUnlink
	callUnlinkat
	callRmdir
	callBind
	callUmask
	callChmod
	callPlace
	callPlaceOf
)

var callNames = map[string]call{
	"open": callOpen, "creat": callCreat, "openat": callOpenat, "openat2": callOpenat2, "truncate": callTruncate,
	"mkdir": callMkdir, "mkdirat": callMkdirat, "mknod": callMknod, "mknodat": callMknodat,
	"symlink": callSymlink, "symlinkat": callSymlinkat, "link": callLink, "linkat": callLinkat,
	"rename": callRename, "renameat": callRenameat, "renameat2": callRenameat2,
	"unlink": callUnlink, "unlinkat": callUnlinkat, "rmdir": callRmdir,
	"bind": callBind, "umask": callUmask, "sched_setaffinity": callPlace, "sched_getaffinity": callPlaceOf,
	"chmod": callChmod, "fchmod": callChmod, "fchmodat": callChmod, "fchmodat2": callChmod,
}

// dispatchTable tells calls apart by their numbers.
func dispatchTable(t table) (out [newest + 1]call) {
	for name, c := range callNames {
		if nr, ok := t[name]; ok {
			out[nr] = c
		}
	}
	return out
}
