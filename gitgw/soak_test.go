package gitgw_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
)

// soakEnv makes TestSoak run: `make soak` sets it.
const soakEnv = "POSTERN_SOAK"

// load is pushes that come at the same time.
type load struct{ pushes, size int }

func (l load) String() string { return fmt.Sprintf("%d of %d MB", l.pushes, l.size>>20) }

var loads = []load{{50, 20 << 20}, {5, 200 << 20}}

// cost is what a load cost the process in the middle.
type cost struct {
	cpu   float64 // seconds of a processor
	peak  int     // KiB above what it had when it was idle
	while time.Duration
}

// TestSoak holds the gateway to its bounds: 64 MiB for all pushes together, and 1.25
// times the processor time of a plain reverse proxy that does the same in turn with it.
// The forge throws packs away, so that the one in the middle is never waiting for it.
func TestSoak(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skip("takes a machine to itself: make soak")
	}
	const rounds = 5
	forge := newSink(t)
	for _, l := range loads {
		var ratios []float64
		peak := 0
		for range rounds {
			floor := forge.soak(t, "reverseproxy", l)
			ours := forge.soak(t, "gateway", l)
			ratios = append(ratios, ours.cpu/floor.cpu)
			peak = max(peak, ours.peak)
			t.Logf("%s: gateway %.2f s of CPU in %s, %d KiB more; reverse proxy %.2f s in %s, %d KiB more",
				l, ours.cpu, ours.while.Round(time.Millisecond), ours.peak, floor.cpu, floor.while.Round(time.Millisecond), floor.peak)
		}
		slices.Sort(ratios)
		median := ratios[rounds/2]
		t.Logf("%s: median of the ratios %.2f, peak %d KiB", l, median, peak)
		if median > 1.25 {
			t.Errorf("%s: %.2f times the processor time of a reverse proxy", l, median)
		}
		if peak > 64<<10 {
			t.Errorf("%s: grew by %d KiB", l, peak)
		}
	}
}

// BenchmarkPushes measures the same, each beside its floor.
func BenchmarkPushes(b *testing.B) {
	forge := newSink(b)
	for _, l := range []load{{8, 20 << 20}} {
		for _, who := range []string{"reverseproxy", "gateway"} {
			b.Run(who+"/"+strings.ReplaceAll(l.String(), " ", "_"), func(b *testing.B) {
				var cpu float64
				peak := 0
				for b.Loop() {
					c := forge.soak(b, who, l)
					cpu += c.cpu
					peak = max(peak, c.peak)
				}
				gib := float64(b.N) * float64(l.pushes) * float64(l.size) / (1 << 30)
				b.ReportMetric(cpu/gib, "cpu-s/GiB")
				b.ReportMetric(float64(peak)/1024, "peak-MiB")
			})
		}
	}
}

// soak puts a load through a process of its own.
func (f *sink) soak(tb testing.TB, who string, l load) cost {
	tb.Helper()
	address, pid := f.alone(tb, who)
	at := "http://" + address
	if who == "gateway" {
		at += "/github.com"
	}
	transport := &http.Transport{DisableKeepAlives: true, WriteBufferSize: 64 << 10}
	defer transport.CloseIdleConnections()
	push := func(n, size int) error {
		req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, at+"/acme/app.git/git-receive-pack", io.NopCloser(f.body(n, size)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		req.Header.Set("X-Test-Session", strconv.Itoa(n))
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil || !bytes.Contains(text, fmt.Appendf(nil, "ok refs/heads/soak-%d\n", n)) {
			return fmt.Errorf("push %d: %w %q", n, err, text)
		}
		return nil
	}
	if err := push(l.pushes, 1<<20); err != nil { // so that code and buffers are there
		tb.Fatal(err)
	}
	f.taken.Store(0)
	before, spent, started := memoryOf(tb, pid, "VmRSS"), processor(tb, pid), time.Now()
	var all sync.WaitGroup
	errs := make(chan error, l.pushes)
	for n := range l.pushes {
		all.Go(func() { errs <- push(n, l.size) })
	}
	all.Wait()
	if got, want := f.taken.Swap(0), int64(l.pushes)*int64(l.size); got < want {
		tb.Errorf("the forge got %d bytes of %d", got, want)
	}
	for range l.pushes {
		if err := <-errs; err != nil {
			tb.Fatal(err)
		}
	}
	return cost{cpu: processor(tb, pid) - spent, peak: memoryOf(tb, pid, "VmHWM") - before, while: time.Since(started)}
}

// alone starts the one in the middle, until the test ends or it is stopped.
func (f *sink) alone(tb testing.TB, who string) (address string, pid int) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GITGW_TEST_UPSTREAM="+f.url, "GITGW_TEST_TOKEN=soak", "GITGW_TEST_RULE=push", "GITGW_TEST_WHO="+who)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	f.stop()
	f.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	tb.Cleanup(f.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid
}

// processor reads the seconds a process has spent, in user and system mode.
func processor(tb testing.TB, pid int) float64 {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Skip("no /proc here")
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks := 0
	for _, i := range []int{11, 12} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			tb.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100
}

// sink is a forge that takes every push and keeps nothing.
type sink struct {
	url   string
	piece []byte
	taken atomic.Int64 // bytes of packs
	stop  func()       // ends the process that was started last
}

func newSink(tb testing.TB) *sink {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	f := &sink{url: "http://" + listener.Addr().String(), piece: make([]byte, 1<<20), stop: func() {}}
	_, _ = rand.Read(f.piece)
	server := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	tb.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return f
}

const sinkCaps = "report-status side-band-64k ofs-delta atomic object-format=sha1 agent=sink"

func (f *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	enc := pktline.NewEncoder(w)
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/x-git-receive-pack-advertisement")
		_ = enc.EncodeString("# service=git-receive-pack\n", pktline.FlushString, zero+" capabilities^{}\x00"+sinkCaps+"\n")
		_ = enc.Flush()
		return
	}
	body := bufio.NewReaderSize(r.Body, 64<<10)
	scan := pktline.NewScanner(body)
	if !scan.Scan() {
		return
	}
	_, command, _ := strings.Cut(string(scan.Bytes()), " ")
	_, ref, _ := strings.Cut(command, " ")
	ref, _, _ = strings.Cut(ref, "\x00")
	n, _ := io.Copy(io.Discard, body)
	f.taken.Add(n)
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	report := pkt("unpack ok\n") + pkt("ok "+ref+"\n") + "0000"
	_ = enc.EncodeString("\x01" + report)
	_ = enc.Flush()
}

// body is a push of about size bytes: a head, and a pack of one stored blob. Only its
// frame is sound; nobody unpacks it.
func (f *sink) body(n, size int) io.Reader {
	id := fmt.Sprintf("%040x", n+1)
	head := pkt(zero+" "+id+" refs/heads/soak-"+strconv.Itoa(n)+"\x00"+rawCaps) + "0000"
	pack := append([]byte("PACK"), 0, 0, 0, 2, 0, 0, 0, 1)
	readers := []io.Reader{strings.NewReader(head), bytes.NewReader(pack)}
	for range size / len(f.piece) {
		readers = append(readers, bytes.NewReader(f.piece))
	}
	sum := sha1.Sum(pack)
	return io.MultiReader(append(readers, bytes.NewReader(binary.BigEndian.AppendUint32(sum[:16], math.MaxUint32)))...)
}

// serveFloor is a reverse proxy that does for a push what there is to do without
// judging it.
func serveFloor(upstream, token string) error {
	to, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.SetBasicAuth("x-access-token", token)
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, proxy)
}
