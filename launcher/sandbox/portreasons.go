package sandbox

// Reasons of ports that are led into or out of a sandbox.
const (
	ReasonPorts        Reason = "ports_unsupported" // this system's sandbox has no network of its own
	ReasonPortBusy     Reason = "port_in_use"       // somebody else listens there
	ReasonPortDenied   Reason = "port_denied"       // below 1024, and the user may not
	ReasonPortReserved Reason = "port_reserved"     // the run's own proxies
	ReasonPortAddress  Reason = "port_address"      // this host has no such address
)
