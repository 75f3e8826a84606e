package fakegithub

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxBand is the most that git puts in one side-band-64k packet.
const maxBand = 65515

// report passes on the answer to a push. Progress goes through at once; the
// report itself is held until it is whole, given GitHub's reasons where the
// hook left some, and put through the faults. It reports false if the
// connection has to be cut.
func (s *Server) report(to io.Writer, out *bufio.Reader, verdicts string, f Faults) bool {
	tail, banded, err := collectReport(to, out)
	if err != nil {
		return false // git died: what is there is no answer
	}
	raw, _ := os.ReadFile(verdicts) // an empty file says nothing
	tail = frame(withReasons(tail, parseVerdicts(string(raw))), banded)
	switch {
	case f.AbortReport:
		_, _ = to.Write(tail[:len(tail)/2])
		return false
	case f.TruncateReport:
		_, _ = to.Write(tail[:len(tail)/2])
		return true
	case f.SlowReport > 0:
		return s.dribble(to, tail, f.SlowReport)
	}
	_, _ = to.Write(tail)
	return true
}

// dribble writes in 16 steps over a time, or until the server closes.
func (s *Server) dribble(to io.Writer, p []byte, over time.Duration) bool {
	const steps = 16
	tick := time.NewTicker(over / steps)
	defer tick.Stop()
	for i := range steps {
		select {
		case <-tick.C:
		case <-s.closing().Done():
			return false
		}
		if _, err := to.Write(p[len(p)*i/steps : len(p)*(i+1)/steps]); err != nil {
			return false
		}
	}
	return true
}

// collectReport copies bands 2 and 3 of a receive-pack answer to w as they
// come and gathers the report. banded is false if no side-band was negotiated;
// then the whole answer is the report.
func collectReport(w io.Writer, r *bufio.Reader) (report []byte, banded bool, err error) {
	var buf bytes.Buffer
	for {
		pkt, err := readPkt(r)
		switch {
		case errors.Is(err, io.EOF):
			return buf.Bytes(), banded, nil
		case err != nil:
			return nil, banded, err
		case pkt == nil: // flush: the end of the bands, or of the bare report
			if !banded {
				buf.WriteString("0000")
			}
		case pkt[0] == 1:
			banded = true
			buf.Write(pkt[1:])
		case pkt[0] == 2 || pkt[0] == 3:
			banded = true
			if _, err := fmt.Fprintf(w, "%04x%s", len(pkt)+4, pkt); err != nil {
				return nil, banded, err
			}
		default:
			fmt.Fprintf(&buf, "%04x%s", len(pkt)+4, pkt)
		}
	}
}

// withReasons puts the hook's reasons in place of git's one.
func withReasons(report []byte, reasons map[string]string) []byte {
	if len(reasons) == 0 {
		return report
	}
	var out bytes.Buffer
	r := bufio.NewReader(bytes.NewReader(report))
	for {
		pkt, err := readPkt(r)
		if err != nil {
			return out.Bytes()
		}
		if pkt == nil {
			out.WriteString("0000")
			continue
		}
		line := strings.TrimSuffix(string(pkt), "\n")
		if rest, ok := strings.CutPrefix(line, "ng "); ok {
			ref, _, _ := strings.Cut(rest, " ")
			if reason, ok := reasons[ref]; ok {
				line = "ng " + ref + " " + reason
			}
		}
		fmt.Fprintf(&out, "%04x%s\n", len(line)+5, line)
	}
}

// frame wraps a report in band 1 and ends it with the outer flush.
func frame(report []byte, banded bool) []byte {
	if !banded {
		return report
	}
	var out bytes.Buffer
	for len(report) > 0 {
		n := min(len(report), maxBand)
		fmt.Fprintf(&out, "%04x\x01%s", n+5, report[:n])
		report = report[n:]
	}
	out.WriteString("0000")
	return out.Bytes()
}

// parseVerdicts reads the hook's lines: ref, tab, reason.
func parseVerdicts(text string) map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(text) {
		if ref, reason, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			reasons[ref] = reason
		}
	}
	return reasons
}

// readPkt reads one pkt-line; a flush is nil. The end of input between two
// packets is io.EOF, within one it is io.ErrUnexpectedEOF.
func readPkt(r *bufio.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(size[:]), 16, 16)
	switch {
	case err != nil, n != 0 && n < 5:
		return nil, fmt.Errorf("bad pkt-line length %q: %w", size, http.ErrNotSupported)
	case n == 0:
		return nil, nil
	}
	pkt := make([]byte, n-4)
	if _, err := io.ReadFull(r, pkt); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return pkt, nil
}
