package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"postern/caddy-modules/policy"
)

// The benchmarks compare this package with a floor: the shortest proxy that can
// be written with net/http and io.Copy, which has no policy, no limits and no
// checks. Both run as processes of their own, one beside the other in the same
// rounds, and what is compared is the CPU time each of them used; on a shared
// machine nothing else means much. The metric to look at is "x-floor": 1 is as
// much as the floor.

// benchProxy in the environment makes the test binary one of the two proxies.
const benchProxy = "POSTERN_BENCH_PROXY"

func init() {
	if kind := os.Getenv(benchProxy); kind != "" {
		runBenchProxy(kind)
		os.Exit(0)
	}
}

// runBenchProxy serves until stdin ends. For each line there it prints the CPU
// time so far, in microseconds.
func runBenchProxy(kind string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	socks, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr(), socks.Addr())
	switch kind {
	case "floor":
		go func() { _ = http.Serve(ln, floor()) }()
		go floorSocks(socks)
	default:
		s := benchServer()
		go func() { _ = s.ServeHTTP(ln) }()
		go func() { _ = s.ServeSOCKS(socks) }()
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			panic(err)
		}
		fmt.Println((time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Microseconds())
	}
}

// everywhere resolves each name to this machine.
type everywhere struct{}

func (everywhere) Resolve(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
}

// benchServer has a policy of 500 rules and counts its records.
func benchServer() *Server {
	lines := []string{"origin.test " + os.Getenv("POSTERN_BENCH_PORT") + " private"}
	for i := range 499 {
		lines = append(lines, fmt.Sprintf("*.zone%d.example.com 443", i))
	}
	list, err := policy.ParseList(strings.NewReader(strings.Join(lines, "\n")), "bench.list")
	if err != nil {
		panic(err)
	}
	set, err := policy.Compile(policy.Lists{Allow: list}, func(netip.AddrPort) bool { return false })
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	var bytes int64
	return &Server{Gate: &Gate{
		Policy: func() *policy.Set { return set }, Resolver: everywhere{},
		Record: func(r Record) { mu.Lock(); bytes += r.BytesUp + r.BytesDown; mu.Unlock() },
	}}
}

// floor is an HTTP proxy without anything that this package is for.
func floor() http.Handler {
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true, DialContext: floorDial}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			up, err := floorDial(r.Context(), "tcp", r.Host)
			if err != nil {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = c.Write(established)
			floorPipe(c, up)
			return
		}
		r.RequestURI = ""
		resp, err := transport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
}

func floorDial(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, _ := net.SplitHostPort(address)
	var d net.Dialer
	return d.DialContext(ctx, network, "127.0.0.1:"+port)
}

func floorPipe(a, b net.Conn) {
	go func() { _, _ = io.Copy(a, b); _ = a.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(b, a)
	_ = b.(*net.TCPConn).CloseWrite()
	_, _ = a.Close(), b.Close()
}

func floorSocks(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			var b [300]byte
			if _, err := io.ReadFull(c, b[:3]); err != nil {
				return
			}
			_, _ = c.Write([]byte{5, 0})
			if _, err := io.ReadFull(c, b[:5]); err != nil {
				return
			}
			n := int(b[4])
			if _, err := io.ReadFull(c, b[:n+2]); err != nil {
				return
			}
			up, err := floorDial(context.Background(), "tcp", "x:"+strconv.Itoa(int(b[n])<<8|int(b[n+1])))
			if err != nil {
				return
			}
			_, _ = c.Write(socksReply(0))
			floorPipe(c, up)
		}()
	}
}

// benchChild is one of the proxies, in a process of its own.
type benchChild struct {
	http, socks string
	in          io.WriteCloser
	out         *bufio.Scanner
}

func startBenchChild(b *testing.B, kind string, originPort uint16) *benchChild {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchProxy+"="+kind, fmt.Sprintf("POSTERN_BENCH_PORT=%d", originPort), "GOMAXPROCS=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	c := &benchChild{in: in, out: bufio.NewScanner(out)}
	b.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	c.out.Scan()
	c.http, c.socks, _ = strings.Cut(c.out.Text(), " ")
	return c
}

// cpu is the CPU time of the child so far.
func (c *benchChild) cpu(b *testing.B) time.Duration {
	b.Helper()
	_, _ = io.WriteString(c.in, "\n")
	c.out.Scan()
	n, err := strconv.ParseInt(c.out.Text(), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(n) * time.Microsecond
}

// paired runs batches against both proxies in turn and reports the median of
// the ratios, and the CPU time of one operation of ours.
func paired(b *testing.B, o *origin, batch int, run func(c *benchChild, n int) error) {
	b.Helper()
	ours, floor := startBenchChild(b, "postern", o.addr.Port()), startBenchChild(b, "floor", o.addr.Port())
	for _, c := range []*benchChild{ours, floor} {
		if err := run(c, batch/4+1); err != nil { // warm up
			b.Fatal(err)
		}
	}
	var ratios []float64
	var used time.Duration
	b.ResetTimer()
	for i := range b.N {
		spent := map[*benchChild]time.Duration{}
		order := []*benchChild{ours, floor}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, c := range order {
			before := c.cpu(b)
			if err := run(c, batch); err != nil {
				b.Fatal(err)
			}
			spent[c] = c.cpu(b) - before
		}
		used += spent[ours]
		ratios = append(ratios, float64(spent[ours])/float64(spent[floor]))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-floor")
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*batch), "cpu-µs/op")
	b.ReportMetric(0, "ns/op") // the time of the load and both proxies: says nothing
}

func BenchmarkNewTunnelConnect(b *testing.B) {
	o := newOrigin(b, func(_ *origin, c net.Conn) { _, _ = io.Copy(c, c) })
	paired(b, o, 500, func(c *benchChild, n int) error {
		return inParallel(n, 8, func() error { return oneTunnel(c.http, connectTo(o.bench()), established) })
	})
}

func BenchmarkNewTunnelSOCKS(b *testing.B) {
	o := newOrigin(b, func(_ *origin, c net.Conn) { _, _ = io.Copy(c, c) })
	paired(b, o, 500, func(c *benchChild, n int) error {
		answer := append([]byte{5, 0}, socksReply(0)...)
		return inParallel(n, 8, func() error {
			return oneTunnel(c.socks, noAuth+socksRequest("origin.test", o.addr.Port()), answer)
		})
	})
}

func BenchmarkDenied(b *testing.B) {
	o := newOrigin(b, echo)
	paired(b, o, 500, func(c *benchChild, n int) error {
		return inParallel(n, 8, func() error {
			conn, err := net.Dial("tcp", c.http)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			// The floor has no policy; its cheapest answer is a failed dial.
			_, _ = io.WriteString(conn, connectTo("denied.test:1"))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && resp.StatusCode < 400 {
				err = fmt.Errorf("got %s", resp.Status)
			}
			return err
		})
	})
}

func (o *origin) bench() string { return fmt.Sprintf("origin.test:%d", o.addr.Port()) }

func oneTunnel(addr, request string, answer []byte) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	buf := make([]byte, len(answer)+16)
	if n, err := io.ReadFull(conn, buf[:len(answer)]); err != nil {
		return fmt.Errorf("read answer %q: %w", buf[:n], err)
	}
	if _, err := io.WriteString(conn, "0123456789abcdef"); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, buf[:16])
	return err
}

func inParallel(n, workers int, f func() error) error {
	errs := make(chan error, workers)
	for range workers {
		go func() {
			for range n / workers {
				if err := f(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var first error
	for range workers {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

func BenchmarkPlainKeepAlive(b *testing.B) {
	body := strings.Repeat("x", 1024)
	o := newOrigin(b, answering("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 1024\r\n\r\n"+body))
	request := get("http://"+o.bench()+"/", o.bench(), "User-Agent: bench/1", "Accept: */*")
	paired(b, o, 4000, func(c *benchChild, n int) error {
		const workers = 16
		errs := make(chan error, workers)
		for range workers {
			go func() { errs <- keepAsking(c.http, request, n/workers) }()
		}
		var first error
		for range workers {
			if err := <-errs; err != nil && first == nil {
				first = err
			}
		}
		return first
	})
}

func keepAsking(addr, request string, n int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for range n {
		if _, err := io.WriteString(conn, request); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != 1024 {
			return fmt.Errorf("%s, %d bytes, %w", resp.Status, n, err)
		}
	}
	return nil
}

func BenchmarkTunnelBytes(b *testing.B) {
	const size = 32 << 20
	junk := make([]byte, 1<<20)
	o := newOrigin(b, func(_ *origin, c net.Conn) {
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return
		}
		for range size / len(junk) {
			if _, err := c.Write(junk); err != nil {
				return
			}
		}
	})
	paired(b, o, 4, func(c *benchChild, n int) error {
		return inParallel(n, 1, func() error {
			conn, err := net.Dial("tcp", c.http)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, connectTo(o.bench())); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, make([]byte, len(established))); err != nil {
				return err
			}
			if _, err := conn.Write([]byte("x")); err != nil {
				return err
			}
			if n, err := io.Copy(io.Discard, conn); err != nil || n != size {
				return fmt.Errorf("%d bytes, %w", n, err)
			}
			return nil
		})
	})
}
