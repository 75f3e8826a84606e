package fakegithub

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// backend runs `git http-backend` for one request (RFC 3875). net/http/cgi
// would not do: it answers 400 to the chunked body that every push above
// http.postBuffer has. Here the body is copied to git's stdin while git's
// answer is copied back, so a hook's words reach the client in mid-upload.
func (s *Server) backend(w http.ResponseWriter, r *http.Request, g gitPath, service string, repo repo, t Token, f Faults) {
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // not supported is HTTP/2 only, which is off

	verdicts, err := os.CreateTemp(s.dir, "verdicts-")
	if err != nil {
		plain(w, http.StatusInternalServerError, "Internal Server Error\n")
		return
	}
	_ = verdicts.Close()
	defer os.Remove(verdicts.Name())

	// The client's going away must not undo a push that arrived in full, so
	// its context does not end git; a cut body does, by itself. Close does.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	stop := context.AfterFunc(s.closing(), cancel)
	defer stop()

	cmd := exec.CommandContext(ctx, "git", "http-backend")
	cmd.Env = append(gitEnv(), cgiEnv(r, g, repo, t, f)...)
	cmd.Env = append(cmd.Env, "FAKEGITHUB_VERDICTS="+verdicts.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil || cmd.Start() != nil {
		plain(w, http.StatusInternalServerError, "Internal Server Error\n")
		return
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_, _ = io.Copy(stdin, r.Body)
		_ = stdin.Close()
		drain(r.Body) // git refused early; let the client finish and read why
	}()
	done := s.answer(w, rc, bufio.NewReader(stdout), service, r.Method, verdicts.Name(), f)
	drain(stdout)
	err = cmd.Wait()
	s.opts.Log.Debug("git http-backend", slog.String("path", r.URL.Path), slog.Any("err", err), slog.String("stderr", stderr.String()))
	if !done {
		// The connection ends here and now: an orderly end would be taken for a
		// whole answer.
		panic(http.ErrAbortHandler)
	}
	<-fed
}

// answer turns git's CGI answer into an HTTP one. It reports false if the
// connection has to be cut.
func (s *Server) answer(w http.ResponseWriter, rc *http.ResponseController, out *bufio.Reader, service, method, verdicts string, f Faults) bool {
	head, err := textproto.NewReader(out).ReadMIMEHeader()
	if err != nil {
		plain(w, http.StatusInternalServerError, "Internal Server Error\n")
		return true
	}
	status := http.StatusOK
	if line := head.Get("Status"); line != "" {
		if n, err := strconv.Atoi(strings.Fields(line)[0]); err == nil {
			status = n
		}
		head.Del("Status")
	}
	maps.Copy(w.Header(), http.Header(head))
	w.WriteHeader(status)
	_ = rc.Flush()
	to := flushWriter{w, rc}
	if service != "git-receive-pack" || method != http.MethodPost || status != http.StatusOK {
		_, _ = io.Copy(to, out)
		return true
	}
	return s.report(to, out, verdicts, f)
}

// cgiEnv is the request as RFC 3875 puts it, and what the hook must know.
func cgiEnv(r *http.Request, g gitPath, repo repo, t Token, f Faults) []string {
	env := []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(repo.dir), "GIT_HTTP_EXPORT_ALL=1",
		"PATH_INFO=/" + filepath.Base(repo.dir) + "/" + g.rest,
		"REQUEST_METHOD=" + r.Method, "QUERY_STRING=" + r.URL.RawQuery,
		"CONTENT_TYPE=" + r.Header.Get("Content-Type"), "SERVER_PROTOCOL=" + r.Proto,
		"REMOTE_ADDR=127.0.0.1", "REMOTE_USER=x-access-token",
		"FAKEGITHUB_PROTECTED=" + strings.Join(repo.protected, " "),
	}
	if grants(t.Permissions, "workflows", "write") {
		env = append(env, "FAKEGITHUB_WORKFLOWS=1")
	}
	// Without a length http-backend gives git its own stdin, to the end.
	if r.ContentLength >= 0 {
		env = append(env, "CONTENT_LENGTH="+strconv.FormatInt(r.ContentLength, 10))
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" {
		env = append(env, "HTTP_CONTENT_ENCODING="+enc)
	}
	if p := r.Header.Get("Git-Protocol"); p != "" {
		env = append(env, "HTTP_GIT_PROTOCOL="+p, "GIT_PROTOCOL="+p)
	}
	if f.MaxPack > 0 {
		env = append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=receive.maxInputSize", fmt.Sprintf("GIT_CONFIG_VALUE_0=%d", f.MaxPack))
	}
	return env
}

// flushWriter sends every write at once.
type flushWriter struct {
	io.Writer
	rc *http.ResponseController
}

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.rc.Flush()
	}
	return n, err
}
