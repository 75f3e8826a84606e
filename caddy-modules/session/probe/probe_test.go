package probe

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program writes a shell script that stands for the launcher.
func program(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "postern")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	good = `{"available":true,"requiresInstall":false,"note":"bubblewrap: good","backend":"native","tool":"/usr/bin/bwrap","version":"0.8.0","took":12,"lowPorts":true}`
	none = `{"available":false,"requiresInstall":true,"note":"bubblewrap: good","hint":"install it","reason":"bwrap_missing","backend":"none","took":0}`
)

// SPEC 20: exactly one of three lines, and off beats what is there.
func TestStartLines(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		off          bool
		line, reason string
		available    bool
	}{
		{"on", "echo '" + good + "'", false, "agent sandbox ON: bubblewrap: good", "", true},
		{"none", "echo '" + none + "'; exit 1", false, "no OS-native agent sandbox on this host: install it", "bwrap_missing", false},
		{"off, and there is one", "echo '" + good + "'", true, "agent sandbox DISABLED by --sandbox off", "", true},
		{"off, and there is none", "echo '" + none + "'; exit 1", true, "agent sandbox DISABLED by --sandbox off", "bwrap_missing", false},
		{"it fails", "exit 3", false, "no OS-native agent sandbox on this host: run postern doctor", ReasonLauncherFailed, false},
		{"it says nothing", "exit 0", false, "no OS-native agent sandbox on this host: run postern doctor", ReasonLauncherFailed, false},
		{"it says nonsense", "echo '{}'", false, "no OS-native agent sandbox on this host: run postern doctor", ReasonLauncherFailed, false},
		{"it says too much", "while echo 0123456789012345678901234567890123456789; do :; done", false, "no OS-native agent sandbox on this host: run postern doctor", ReasonLauncherFailed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			p := New(Options{Launcher: program(t, tc.script), Off: tc.off, Log: slog.New(slog.NewTextHandler(&log, nil))})
			defer p.Close()
			r, err := p.Result(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.StartLine != tc.line || r.Reason != tc.reason || r.Available != tc.available || r.Off != tc.off {
				t.Errorf("%+v", r)
			}
			if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), tc.line) {
				t.Errorf("%d lines: %s", n, log.String())
			}
		})
	}
}

// SPEC 15: however often it is asked, and by however many.
func TestOnce(t *testing.T) {
	var runs atomic.Int32
	exe := program(t, "")
	p := New(Options{Launcher: exe, Log: slog.New(slog.DiscardHandler), Run: func(context.Context, string) ([]byte, error) {
		runs.Add(1)
		return []byte(good), nil
	}})
	defer p.Close()
	if runs.Load() != 0 {
		t.Error("run before the start")
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			p.Start()
			if r, err := p.Result(t.Context()); err != nil || !r.Available {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	group.Wait()
	if n := runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// A launcher that hangs keeps neither who asks nor the end of the process.
func TestHangs(t *testing.T) {
	p := New(Options{Launcher: program(t, "exec sleep 100"), Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Result(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	p.Close()
	p.Close()
	never := New(Options{Log: slog.New(slog.DiscardHandler)})
	never.Close()
}

func TestFind(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "postern")
	put := func(mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	put(0o755)
	if got, err := find("", []string{empty, dir}); err != nil || got != path {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := find(path, []string{empty}); err != nil || got != path {
		t.Errorf("configured: %q, %v", got, err)
	}
	var missing *missingError
	if _, err := find("", []string{empty}); !errors.As(err, &missing) || !strings.Contains(err.Error(), empty) {
		t.Errorf("nowhere: %v", err)
	}
	// What is configured is meant: no other is taken instead.
	if _, err := find(filepath.Join(empty, "postern"), []string{dir}); !errors.As(err, &missing) {
		t.Errorf("configured, not there: %v", err)
	}
	put(0o777)
	if _, err := find("", []string{dir}); err == nil || errors.As(err, &missing) {
		t.Errorf("writable by all: %v", err)
	}
	if _, err := find(dir, nil); err == nil {
		t.Error("a folder is a program")
	}
}

// SPEC 22.
func TestOff(t *testing.T) {
	for _, tc := range []struct {
		configured, name, alias string
		want                    bool
	}{
		{"", "", "", false},
		{"off", "", "", true},
		{"OFF", "on", "on", true},
		{"on", "off", "off", false},
		{"maybe", "off", "", false},
		{"", "Off", "", true},
		{"", "on", "off", false},
		{"", "", " oFF ", true},
		{"", "", "no", false},
	} {
		env := map[string]string{"POSTERN_SANDBOX": tc.name, "CC_SERVER_SANDBOX": tc.alias}
		if got := Off(tc.configured, func(name string) string { return env[name] }); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}
