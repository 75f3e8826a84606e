//go:build linux

package netlab

import (
	"fmt"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// Room is a network of its own inside the lab, as a sandbox has: a loopback link
// where every address is local, and no way out. Sockets made in it stay in it,
// whoever uses them.
type Room struct {
	calls chan func()
	ended chan struct{}
}

// Room makes one. Close it.
func (*Lab) Room() (*Room, error) {
	r := &Room{calls: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go r.live(ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("make a room: %w", err)
	}
	return r, nil
}

// live keeps a thread in the network, and brings it back at the end. A thread that
// ended instead could take along what was started on it: Linux takes the end of a
// parent's thread for that of the parent (PR_SET_PDEATHSIG).
func (r *Room) live(ready chan<- error) {
	defer close(r.ended)
	runtime.LockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		ready <- fmt.Errorf("open the lab's network: %w", err)
		return
	}
	defer unix.Close(home)
	err = furnish()
	ready <- err
	if err == nil {
		for f := range r.calls {
			f()
		}
	}
	if unix.Setns(home, unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread is of no use to anybody
	}
}

// furnish takes the thread to a new network, and makes every address local there.
func furnish() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback link: %w", err)
	}
	nl, err := dialNetlink()
	if err != nil {
		return err
	}
	defer nl.close()
	if err := nl.linkUp(lo.Index); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := nl.routeLocal(lo.Index, unix.AF_INET); err != nil {
		return fmt.Errorf("make every IPv4 address local: %w", err)
	}
	return nil
}

// Do runs f in the room. The sockets that f itself makes are the room's; a
// goroutine that it starts is not in it.
func (r *Room) Do(f func() error) error {
	err := make(chan error, 1)
	r.calls <- func() { err <- f() }
	return <-err
}

// Close leaves the room, which goes with the last of its sockets.
func (r *Room) Close() {
	close(r.calls)
	<-r.ended
}
