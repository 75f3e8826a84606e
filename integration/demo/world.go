package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"postern/integration/fakegithub"
)

const (
	forgeRepo  = "acme/storefront"
	repository = "github.com/" + forgeRepo
	partner    = "api.partner.example"
)

//go:embed demo.Caddyfile
var caddyfile []byte

// world is everything around the run: the appliance, the forge, a partner's
// server, a resolver that knows it, and a worktree.
type world struct {
	dir, worktree, forgeDir string
	env                     []string // of the appliance and the launcher
	forge                   *fakegithub.Server
	partner, originAddr     string // host:port by name and by address
	base, commit            string // main on the server, and what the run pushes
	caddy                   *exec.Cmd
	transcript              bytes.Buffer
	closers                 []func()
}

func newWorld(ctx context.Context) (_ *world, err error) {
	dir, err := os.MkdirTemp("", "postern-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the demo: %w", err)
	}
	w := &world{dir: dir, worktree: filepath.Join(dir, "storefront"), forgeDir: filepath.Join(dir, "forge")}
	w.closers = append(w.closers, func() { _ = os.RemoveAll(dir) })
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, start := range []func(context.Context) error{w.startForge, w.startPartner, w.cloneWorktree, w.startAppliance} {
		if err := start(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// close ends what newWorld started, last first.
func (w *world) close() {
	for _, v := range slices.Backward(w.closers) {
		v()
	}
	w.closers = nil
}

func (w *world) startForge(context.Context) error {
	if err := os.Mkdir(w.forgeDir, 0o700); err != nil {
		return fmt.Errorf("make the forge's folder: %w", err)
	}
	forge, err := fakegithub.New(fakegithub.Options{Dir: w.forgeDir})
	if err != nil {
		return err
	}
	w.closers = append(w.closers, func() { _ = forge.Close() })
	w.forge = forge
	if err := forge.AddRepo(forgeRepo); err != nil {
		return err
	}
	forge.Install(fakegithub.Installation{Account: "acme"})
	w.base, err = forge.Commit(forgeRepo, "main", "Open the shop", map[string]string{"README": "storefront\n"})
	return err
}

// startPartner serves the one allowed host, and the resolver that knows it.
func (w *world) startPartner(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start the partner: %w", err)
	}
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "hello from the allowed host\n")
	})}
	go func() { _ = srv.Serve(ln) }()
	w.closers = append(w.closers, func() { _ = srv.Close() })
	w.originAddr = ln.Addr().String()
	_, port, _ := net.SplitHostPort(w.originAddr)
	w.partner = net.JoinHostPort(partner, port)

	pc, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start the resolver: %w", err)
	}
	resolver := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(answer)}
	go func() { _ = resolver.ActivateAndServe() }()
	w.closers = append(w.closers, func() { _ = pc.Close() })
	w.env = append(w.env, "DEMO_DNS="+pc.LocalAddr().String(), "DEMO_PARTNER="+partner, "DEMO_PARTNER_PORT="+port)
	return nil
}

// answer knows the partner and nobody else.
func answer(rw dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	switch {
	case len(q.Question) != 1 || !strings.EqualFold(q.Question[0].Name, partner+"."):
		m.Rcode = dns.RcodeNameError
	case q.Question[0].Qtype == dns.TypeA:
		m.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(127, 0, 0, 1),
		}}
	}
	_ = rw.WriteMsg(m)
}

// cloneWorktree makes the checkout an agent host would provision, with one commit
// to push. Its remote is GitHub's own address, as everybody's is.
func (w *world) cloneWorktree(ctx context.Context) error {
	bare, err := w.forge.Dir(forgeRepo)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"clone", "-q", bare, w.worktree},
		{"-C", w.worktree, "remote", "set-url", "origin", "https://" + repository + ".git"},
		{"-C", w.worktree, "-c", "user.name=Agent", "-c", "user.email=agent@example.com", "commit", "-q", "--allow-empty", "-m", "Add a shelf"},
	} {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	head, err := exec.CommandContext(ctx, "git", "-C", w.worktree, "rev-parse", "HEAD").Output()
	w.commit = strings.TrimSpace(string(head))
	return err
}

func (w *world) startAppliance(ctx context.Context) error {
	runDir, config, key := filepath.Join(w.dir, "run"), filepath.Join(w.dir, "Caddyfile"), filepath.Join(w.dir, "app.pem")
	if err := errors.Join(os.WriteFile(config, caddyfile, 0o600), os.WriteFile(key, w.forge.KeyPEM(), 0o600)); err != nil {
		return fmt.Errorf("write the appliance's configuration: %w", err)
	}
	w.env = append(w.env, "PATH="+os.Getenv("PATH"), "HOME="+w.dir, "LANG=C.UTF-8", "TERM=dumb", "POSTERN_RUN="+runDir,
		"DEMO_FORGE="+w.forge.URL(), "DEMO_KEY="+key, "DEMO_APP="+strconv.FormatInt(w.forge.AppID(), 10))
	log, err := os.Create(filepath.Join(w.dir, "caddy.log"))
	if err != nil {
		return fmt.Errorf("make the appliance's log: %w", err)
	}
	defer log.Close()
	w.caddy = exec.CommandContext(ctx, binary("caddy"), "run", "--adapter", "caddyfile", "--config", config)
	w.caddy.Env, w.caddy.Stdout, w.caddy.Stderr = w.env, log, log
	w.caddy.Cancel = func() error { return w.caddy.Process.Signal(syscall.SIGTERM) }
	if err := w.caddy.Start(); err != nil {
		return fmt.Errorf("start the appliance: %w (did `make build` run?)", err)
	}
	w.closers = append(w.closers, func() { _ = w.end() })
	for range 200 {
		conn, err := net.Dial("unix", filepath.Join(runDir, "lease.sock"))
		if err == nil {
			return conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("the appliance did not come up:\n%s", text)
}

// end stops the appliance and waits for it.
func (w *world) end() error {
	if w.caddy == nil || w.caddy.Process == nil {
		return nil
	}
	caddy := w.caddy
	w.caddy = nil
	if err := caddy.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the appliance: %w", err)
	}
	if err := caddy.Wait(); err != nil {
		return fmt.Errorf("stop the appliance: %w", err)
	}
	return nil
}

// inSandbox runs argv as the user would: bin/postern, in the worktree.
func (w *world) inSandbox(ctx context.Context, argv []string) (string, int, error) {
	cmd := exec.CommandContext(ctx, binary("postern"), append([]string{"run", "--repo", repository, "--"}, argv...)...)
	cmd.Dir, cmd.Env = w.worktree, w.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	w.transcript.Write(out.Bytes())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out.String(), exit.ExitCode(), nil
	}
	return out.String(), 0, err
}

// binary names what `make build` made. The demo runs from the module's root.
func binary(name string) string {
	path, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return name
	}
	return path
}
