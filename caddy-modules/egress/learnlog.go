package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
	"postern/caddy-modules/session"
)

// maxLogLine bounds a line of the log, in bytes. Longer ones are nobody's decision.
const maxLogLine = 1 << 20

// auditLine is what is read of a line of the trail.
type auditLine struct {
	TS        json.RawMessage `json:"ts"`
	Msg       string          `json:"msg"`
	Session   string          `json:"session"`
	Policy    string          `json:"policy"`
	Proto     string          `json:"proto"`
	Target    string          `json:"target"`
	Allowed   bool            `json:"allowed"`
	WouldDeny bool            `json:"would_deny"`
	Code      string          `json:"code"`
	Scheme    string          `json:"scheme"`
	Count     int             `json:"count"` // of a line that tells how many others are missing
}

// target reads the target of the line in its canonical form, with port 0 where it is
// a name that was only asked for. A log is a file, and nothing of it becomes a rule as
// it stands.
func (d *auditLine) target() (policy.Host, uint16, error) {
	if d.Proto == session.ProtoDNS {
		h, err := policy.ParseName(d.Target)
		return h, 0, err
	}
	t, err := policy.ParseTarget(d.Target, policy.SchemeTCP)
	return t.Host(), t.Port(), err
}

// schemeWord is the word of a rule that would have allowed what a rule for another scheme
// did not: that one's list is narrow on purpose. "" is a rule for all of them.
func (d *auditLine) schemeWord() string {
	switch {
	case d.Code != policy.SchemeNotAllowed.String():
		return ""
	case d.Scheme == policy.SchemeHTTP.String():
		return "http"
	case d.Scheme == policy.SchemeTLS.String():
		return "https"
	default:
		return "" // a tunnel that may carry anything needs one
	}
}

// knownProto gives the word back if it is one of ours.
func knownProto(text string) (string, bool) {
	switch proxy.Proto(text) {
	case proxy.ProtoHTTP, proxy.ProtoConnect, proxy.ProtoSOCKS5, proxy.ProtoTransparent, session.ProtoDNS:
		return text, true
	default:
		return "", false
	}
}

// word makes a code fit for a comment.
func word(code string) string {
	for _, c := range []byte(code) {
		if c != '_' && (c < 'a' || c > 'z') {
			return "unknown"
		}
	}
	return code
}

// read takes every decision of a log, the rolled files beside it first.
func (l *learner) read(path string) error {
	files, err := rolled(path)
	if err != nil {
		return err
	}
	var lines, objects int
	for _, file := range files {
		n, m, err := l.readFile(file)
		if err != nil {
			return fmt.Errorf("read log %s: %w", file, err)
		}
		lines, objects = lines+n, objects+m
	}
	if lines > 0 && objects == 0 {
		return fmt.Errorf("read log %s: no line is JSON; the log needs `format json`", path)
	}
	return nil
}

// rolled are the files of a log. FILE-TIME.log, compressed as .gz, is what Caddy leaves
// of FILE.log.
func rolled(path string) ([]string, error) {
	dir, base := filepath.Split(path)
	ext := filepath.Ext(base)
	prefix := strings.TrimSuffix(base, ext) + "-"
	entries, err := os.ReadDir(filepath.Clean(filepath.Join(dir, ".")))
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	var files []string
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".gz")
		if e.Type().IsRegular() && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, ext) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(files)
	if _, err := os.Stat(path); err == nil {
		files = append(files, path)
	} else if !errors.Is(err, fs.ErrNotExist) || len(files) == 0 {
		return nil, fmt.Errorf("read log: %w; name the file of the log egress with --log", err)
	}
	return files, nil
}

func (l *learner) readFile(path string) (lines, objects int, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil // rolled away meanwhile
	}
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var from io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		z, err := gzip.NewReader(f)
		if err != nil {
			return 0, 0, err
		}
		defer z.Close()
		from = z
	}
	return l.readLines(from)
}

func (l *learner) readLines(from io.Reader) (lines, objects int, err error) {
	in := bufio.NewReaderSize(from, maxLogLine)
	for {
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) {
			line = nil
			_, err = in.ReadSlice('\n')
		}
		if len(line) > 0 {
			lines++
			if l.readLine(line) {
				objects++
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return lines, objects, nil
		case err != nil:
			return lines, objects, err
		}
	}
}

// readLine says whether the line is JSON.
func (l *learner) readLine(line []byte) bool {
	if line[0] != '{' {
		return false
	}
	if !bytes.Contains(line, []byte(`"`+string(proxy.KindDecision)+`"`)) && !bytes.Contains(line, []byte(`"`+session.TrailDropped+`"`)) {
		return true // nearly every line that is neither
	}
	var d auditLine
	if json.Unmarshal(line, &d) != nil {
		return false // the end of what a killed process wrote
	}
	switch d.Msg {
	case string(proxy.KindDecision):
		l.add(&d, stamp(d.TS))
	case session.TrailDropped:
		if at := stamp(d.TS); !at.Before(l.since) {
			l.missing += max(0, d.Count)
		}
	}
	return true
}

// stamp reads a time as Caddy writes it: seconds, or what `time_format` has made of
// them. A time that cannot be read is none, and older than anything.
func stamp(raw json.RawMessage) time.Time {
	var n float64
	if json.Unmarshal(raw, &n) == nil {
		switch {
		case n > 1e17: // nanoseconds
			return time.Unix(0, int64(n))
		case n > 1e11: // milliseconds
			return time.UnixMicro(int64(n * 1e3))
		default:
			return time.UnixMicro(int64(n * 1e6))
		}
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at
		}
	}
	for _, layout := range []string{"2006/01/02 15:04:05.000", "2006/01/02 15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at
		}
	}
	return time.Time{}
}
