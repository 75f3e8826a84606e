package violation

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// LogExe is the program that reads the system's log.
const LogExe = "/usr/bin/log"

// maxLogLine bounds one line of the log's stream, in bytes.
const maxLogLine = 64 << 10

// Tap reads the denials of one run from the system's log, on macOS.
type Tap struct {
	cmd  *exec.Cmd
	stop context.CancelFunc
	done sync.WaitGroup
}

// StartTap begins to read the log with exe, LogExe where it is empty, and gives sink the
// denials whose message ends in tag. Where the log cannot be read, as for users who are
// no administrators, there is no telemetry; that is no error of the run, and nothing
// comes of the Tap. Close ends it.
func StartTap(exe, tag string, sink *Sink) *Tap {
	if exe == "" {
		exe = LogExe
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &Tap{stop: stop, cmd: exec.CommandContext(ctx, exe, "stream", "--style", "ndjson", "--predicate", predicate(tag))}
	// What the caller's environment loads into programs is not for this one.
	t.cmd.Env = []string{"PATH=/usr/bin:/bin"}
	t.cmd.Dir = "/"
	t.cmd.WaitDelay = time.Second
	out, err := t.cmd.StdoutPipe()
	if err != nil || t.cmd.Start() != nil {
		stop()
		t.cmd = nil
		return t
	}
	t.done.Go(func() {
		readLog(out, tag, sink)
		stop() // whoever sends nonsense is not listened to
		_ = t.cmd.Wait()
	})
	return t
}

// predicate asks for the sandbox's messages of one run. The kernel appends the tag of
// (with message …) to each: one run never hears of another's (SPEC 96).
func predicate(tag string) string {
	const sandbox = `sender == "Sandbox" OR subsystem == "com.apple.sandbox"`
	if tag == "" {
		return sandbox
	}
	return "(" + sandbox + `) AND eventMessage ENDSWITH "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(tag) + `"`
}

// readLog reads the stream to its end.
func readLog(r io.Reader, tag string, sink *Sink) {
	br := bufio.NewReaderSize(r, maxLogLine)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for errors.Is(err, bufio.ErrBufferFull) { // too long to be one of ours
				_, err = br.ReadSlice('\n')
			}
			line = nil
		}
		if d, ok := parseLog(line, tag); ok && !d.noise(tag != "") {
			sink.Add(Violation{Action: d.op, Target: d.target, Raw: d.raw})
		}
		if err != nil {
			return
		}
	}
}

// Close ends the reading, and waits for it.
func (t *Tap) Close() {
	t.stop()
	t.done.Wait()
}
