package proxy

import (
	"net/netip"
	"time"

	"postern/caddy-modules/policy"
)

// Kind says what a Record reports.
type Kind string

// The kinds. Each connection or plain request gives one decision, and one close
// if it was opened.
const (
	KindDecision Kind = "decision"
	KindClose    Kind = "close"
)

// Proto is the front end a request came through.
type Proto string

// The front ends.
const (
	ProtoHTTP    Proto = "http"    // plain http:// in absolute-form, ws:// included
	ProtoConnect Proto = "connect" // CONNECT, and each plain request in its tunnel
	ProtoSOCKS5  Proto = "socks5"
	// ProtoTransparent is a connection to a made-up address, each plain request
	// in it included.
	ProtoTransparent Proto = "transparent"
)

// Cause says why something that was open came to its end.
type Cause string

// The causes of a close.
const (
	CauseDone    Cause = "done"    // both sides said they were finished
	CauseError   Cause = "error"   // a side broke the connection
	CauseRefused Cause = "refused" // what the tunnel carried: its ClientHello, or a request for another host
	CauseIdle    Cause = "idle"    // Limits.Idle
	CauseTotal   Cause = "total"   // Limits.Total
	CauseBytes   Cause = "bytes"   // Limits.Bytes
	CauseRevoked Cause = "revoked" // Server.Recheck: the policy changed
	CauseClosed  Cause = "closed"  // Server.Close: the session ended
)

// Record is one entry of the audit trail. The target in it is what was judged,
// never a header of the client.
type Record struct {
	Time time.Time
	// Conn is the same in a decision and in the close that belongs to it, and in no
	// other record of this process.
	Conn   uint64
	Kind   Kind
	Proto  Proto
	Target policy.Target
	// Decision is that of the policy. Its Allowed is false as well when only
	// what the tunnel carried was refused, so that nobody who reads it alone
	// takes the request for allowed; what to show comes from the methods
	// Allowed, Code and Reason of the Record.
	Decision policy.Decision
	// Hello is the look at what a tunnel carries. With SNILog it may be a refusal
	// that was only noted: then Decision.Allowed is true.
	Hello HelloVerdict
	// Local says that the target is answered in process and was not judged.
	Local bool
	// Addr is where the connection went, invalid when nothing was opened. It
	// is invalid as well for a target that is answered in process.
	Addr netip.AddrPort
	// Resolved are the addresses of a name, each of which was allowed: none of a
	// target that is an address itself, and at most maxResolved.
	Resolved []netip.Addr
	// Parent is the proxy that the connection went through, "" for none. One that
	// looks names up leaves Addr and Resolved empty.
	Parent string
	// Lookup and Connect say how long it took to open the connection, zero for a
	// request on one that was open.
	Lookup, Connect time.Duration
	// Failed is why a target that is allowed was not reached, as in the header
	// Postern-Reason; "" when it was. There is no close then.
	Failed string
	// AskedFor is the made-up address by which the client named the target,
	// invalid when it used the target's own name.
	AskedFor netip.Addr
	// SNI is the server name of the ClientHello as it was sent, or the foreign
	// Host of a request in a tunnel; "" for none. It comes from the client and
	// may hold any byte that TLS can carry.
	SNI string

	// BytesUp and BytesDown are content bytes from and to the client, Duration
	// the time since the decision; Cause says why it ended. Of a close only.
	BytesUp, BytesDown int64
	Duration           time.Duration
	Cause              Cause

	// Client is the remote address of the client connection.
	Client string
}

// maxResolved bounds the addresses that a record keeps.
const maxResolved = 16

// Allowed is the whole judgement in one word.
func (r *Record) Allowed() bool { return r.Decision.Allowed }

// Code is the stable snake_case word for headers, logs and metrics: that of the
// decision, or of the check of the ClientHello.
func (r *Record) Code() string { return r.verdict().code() }

// Reason is one line of printable ASCII for a person or an agent.
func (r *Record) Reason() string { return r.verdict().reason() }

func (r *Record) verdict() verdict {
	return verdict{target: r.Target, decision: r.Decision, hello: r.Hello, local: r.Local}
}

// Stats counts what a Server did since it was made.
type Stats struct {
	OpenConns   int64 // client connections now
	OpenTunnels int64 // tunnels now, upgrades included
	Conns       int64 // client connections ever
	Tunnels     int64 // tunnels ever
	Requests    int64 // plain requests that were forwarded
	Denied      int64 // refusals by policy
	Malformed   int64 // refusals of requests that could not be read
	Failed      int64 // allowed, but the upstream could not be reached
	Overflow    int64 // connections turned away because there were too many
	Unadmitted  int64 // connections closed because of Server.Admit
	BytesUp     int64 // content bytes from clients, of what has ended
	BytesDown   int64 // content bytes to clients, of what has ended
}
