package fakegithub

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// DefaultAppID is the App's id when Options names none.
const DefaultAppID = 412233

// Options says what kind of GitHub to be. The zero value is a plain HTTP
// server on a free loopback port with a fresh key and an empty directory.
type Options struct {
	Addr     string           // address to listen on; "127.0.0.1:0" if empty
	Dir      string           // where repositories live; a temporary directory, removed by Close, if empty
	AppID    int64            // DefaultAppID if 0
	ClientID string           // the App's client id, the issuer GitHub prefers; "Iv23fakegithub" if empty
	Key      *rsa.PrivateKey  // the App's key; made if nil
	TLS      bool             // serve HTTPS with the certificate of CertPEM
	Now      func() time.Time // time.Now if nil
	Log      *slog.Logger     // one line a request, without secrets; nothing if nil
}

// Server is a running fake. All methods may be called from any goroutine.
type Server struct {
	opts     Options
	key      *rsa.PrivateKey
	dir      string
	ownDir   bool
	ln       net.Listener
	http     *http.Server
	certPEM  []byte
	done     chan struct{}
	handlers sync.WaitGroup
	closing  func() context.Context // ends when Close is called
	cut      context.CancelFunc

	mu         sync.Mutex
	skew       time.Duration
	nextID     int64
	repos      map[string]*repo // by lower-case owner/name
	moved      map[string]string
	installs   map[int64]*Installation
	tokens     map[string]*Token
	order      []string // token values, oldest first
	requests   []*Request
	faults     Faults
	longTokens bool
	objects    map[string]int64 // LFS objects kept, with their size
	lfsTried   int              // uploads of them that ended
}

// New starts a fake GitHub. It needs a git with http-backend on PATH.
func New(o Options) (*Server, error) {
	s := &Server{
		opts:     o,
		nextID:   1000,
		repos:    map[string]*repo{},
		moved:    map[string]string{},
		installs: map[int64]*Installation{},
		tokens:   map[string]*Token{},
		objects:  map[string]int64{},
		done:     make(chan struct{}),
	}
	ctx, cut := context.WithCancel(context.Background())
	s.closing, s.cut = func() context.Context { return ctx }, cut
	if err := s.defaults(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		s.removeDir()
		return nil, err
	}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(s.ln) // ends with ErrServerClosed; there is nobody to tell
	}()
	return s, nil
}

// defaults fills Options and makes the key and the directory.
func (s *Server) defaults() error {
	o := &s.opts
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.AppID == 0 {
		o.AppID = DefaultAppID
	}
	if o.ClientID == "" {
		o.ClientID = "Iv23fakegithub"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s.key = o.Key
	if s.key == nil {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return fmt.Errorf("make app key: %w", err)
		}
		s.key = key
	}
	s.dir = o.Dir
	if s.dir == "" {
		dir, err := os.MkdirTemp("", "fakegithub-")
		if err != nil {
			return fmt.Errorf("make repository directory: %w", err)
		}
		s.dir, s.ownDir = dir, true
	}
	// The hooks directory is shared by all repositories: one text, one place.
	if err := writeHooks(filepath.Join(s.dir, "hooks")); err != nil {
		s.removeDir()
		return err
	}
	return nil
}

func (s *Server) listen() error {
	ln, err := net.Listen("tcp", s.opts.Addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.opts.Addr, err)
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second, ErrorLog: slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug)}
	// git speaks h2 over TLS when offered; GitHub does offer it, but full
	// duplex handling below is written for HTTP/1.1, as the gateway's is.
	s.http.Protocols = new(http.Protocols)
	s.http.Protocols.SetHTTP1(true)
	if s.opts.TLS {
		cert, certPEM, err := selfSigned(s.opts.Now())
		if err != nil {
			_ = ln.Close()
			return err
		}
		s.certPEM = certPEM
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	}
	s.ln = ln
	return nil
}

// Close ends the server, its git processes and, if it made it, its directory.
func (s *Server) Close() error {
	// In-flight git processes get a moment to end by themselves; what hangs
	// on purpose (a slow report) is cut.
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	err := s.http.Shutdown(ctx)
	s.cut()
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	<-s.done
	s.handlers.Wait()
	s.removeDir()
	return err
}

func (s *Server) removeDir() {
	if s.ownDir {
		_ = os.RemoveAll(s.dir)
	}
}

// URL is the root of the server, without a final slash. The App API and the
// repositories both live under it.
func (s *Server) URL() string {
	scheme := "http"
	if s.opts.TLS {
		scheme = "https"
	}
	return scheme + "://" + s.ln.Addr().String()
}

// APIURL is the API's base in GitHub Enterprise's form, with a final slash.
func (s *Server) APIURL() string { return s.URL() + "/api/v3/" }

// RepoURL is the git URL of a repository named OWNER/NAME.
func (s *Server) RepoURL(name string) string { return s.URL() + "/" + name + ".git" }

// AppID is the App's numeric id.
func (s *Server) AppID() int64 { return s.opts.AppID }

// ClientID is the App's client id.
func (s *Server) ClientID() string { return s.opts.ClientID }

// KeyPEM is the App's private key as GitHub hands it out (PKCS #1).
func (s *Server) KeyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(s.key)})
}

// CertPEM is the certificate a client must trust when Options.TLS is set.
func (s *Server) CertPEM() []byte { return s.certPEM }

// Now is GitHub's time: the base clock moved by Advance.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Server) now() time.Time { return s.opts.Now().Add(s.skew) }

// Advance moves GitHub's clock, forwards or backwards. It ages tokens, and it
// makes the caller's JWTs look early or late.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
}

// id hands out the next repository or installation id.
func (s *Server) id() int64 {
	s.nextID++
	return s.nextID
}

// ServeHTTP sorts requests into git and API, and logs each one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	rec := newRecorder(w, r)
	// net/http would stamp the machine's own time; a minter with a wrong clock
	// is meant to learn GitHub's from here.
	rec.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	rec.Header().Set("Server", "github.com")
	e := s.begin(r)
	defer func() { s.end(e, rec) }()
	if g, ok := parseGitPath(r.URL.Path); ok {
		s.serveGit(rec, r, g, e)
		return
	}
	r2 := r.Clone(r.Context())
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/v3"); ok && (rest == "" || rest[0] == '/') {
		r2.URL.Path = "/" + strings.TrimPrefix(rest, "/")
	}
	s.serveAPI(rec, r2, e)
}

// drain reads what is left of a body, so that the client reads our answer
// instead of meeting a reset in mid-upload.
func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
