package sbpl

// parents maps each operation to the wider one whose rules also cover it.
// An operation that is not here is "unbound variable" to sandbox-exec, and the
// whole profile fails.
var parents = map[string]string{
	"default": "",

	"file*":               "default",
	"file-read*":          "file*",
	"file-read-data":      "file-read*",
	"file-read-metadata":  "file-read*",
	"file-read-xattr":     "file-read*",
	"file-write*":         "file*",
	"file-write-acl":      "file-write*",
	"file-write-create":   "file-write*",
	"file-write-data":     "file-write*",
	"file-write-flags":    "file-write*",
	"file-write-mode":     "file-write*",
	"file-write-mount":    "file-write*",
	"file-write-owner":    "file-write*",
	"file-write-setugid":  "file-write*",
	"file-write-times":    "file-write*",
	"file-write-umount":   "file-write*",
	"file-write-unlink":   "file-write*",
	"file-write-xattr":    "file-write*",
	"file-clone":          "file*",
	"file-ioctl":          "file*",
	"file-link":           "file*",
	"file-map-executable": "file*",
	"file-mknod":          "file*",
	"file-search":         "file*",
	"file-test-existence": "file*",

	"network*":         "default",
	"network-bind":     "network*",
	"network-inbound":  "network*",
	"network-outbound": "network*",

	"process*":                 "default",
	"process-exec*":            "process*",
	"process-exec":             "process-exec*",
	"process-exec-interpreter": "process-exec*",
	"process-fork":             "process*",
	"process-info*":            "process*",
	"process-info-pidinfo":     "process-info*",
	"process-info-setcontrol":  "process-info*",

	"mach*":               "default",
	"mach-lookup":         "mach*",
	"mach-register":       "mach*",
	"mach-priv-task-port": "mach*",
	"mach-task-name":      "mach*",

	"appleevent-send":        "default",
	"job-creation":           "default",
	"lsopen":                 "default",
	"pseudo-tty":             "default",
	"signal":                 "default",
	"system-socket":          "default",
	"sysctl*":                "default",
	"sysctl-read":            "sysctl*",
	"sysctl-write":           "sysctl*",
	"user-preference*":       "default",
	"user-preference-read":   "user-preference*",
	"user-preference-write":  "user-preference*",
	"ipc-posix*":             "default",
	"ipc-posix-shm*":         "ipc-posix*",
	"ipc-posix-sem*":         "ipc-posix*",
	"iokit-open":             "default",
	"distributed-notif-post": "default",
}

// level returns how many steps rule lies above op (0 is op itself), and whether
// a rule for rule covers op at all.
func level(op, rule string) (int, bool) {
	for steps := 0; op != ""; steps++ {
		if op == rule {
			return steps, true
		}
		op = parents[op]
	}
	return 0, false
}
