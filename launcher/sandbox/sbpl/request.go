package sbpl

// Endpoint is one end of a socket, as an ip, tcp or udp filter sees it.
type Endpoint struct {
	Proto string // "tcp" or "udp"
	IPv6  bool
	Host  string // "localhost" for 127.0.0.1 and ::1, else anything
	Port  int    // 0: not bound yet
}

// Request is one operation of one process. Op must be a leaf such as
// file-write-create, never a wildcard such as file-write*.
type Request struct {
	Op     string
	Path   string // resolved, absolute; also of a Unix socket
	Name   string // a mach service, a preference domain, a sysctl
	Vnode  string // REGULAR-FILE, DIRECTORY, SYMLINK, …; "" is a regular file
	Target string // of signal and process-info: self, same-sandbox, others
	Local  *Endpoint
	Remote *Endpoint
	Socket Socket
}

// Socket describes the argument of system-socket.
type Socket struct{ Domain, Type, Protocol string }
