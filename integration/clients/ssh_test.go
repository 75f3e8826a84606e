//go:build linux

package clients

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
)

// startSSH is a forge's SSH door for one repository that may be read.
func startSSH(t *testing.T, repository string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	ln := listen(t, 22)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				serveSSH(c, config, repository)
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
}

func serveSSH(c net.Conn, config *ssh.ServerConfig, repository string) {
	conn, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests)
	for nc := range channels {
		if nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		ch, requests, err := nc.Accept()
		if err != nil {
			return
		}
		serveSession(ch, requests, repository)
	}
}

// serveSession runs the one command there is.
func serveSession(ch ssh.Channel, requests <-chan *ssh.Request, repository string) {
	defer ch.Close()
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(r.Type == "env", nil)
			continue
		}
		var command struct{ Text string }
		if ssh.Unmarshal(r.Payload, &command) != nil || !strings.HasPrefix(command.Text, "git-upload-pack ") {
			_ = r.Reply(false, nil)
			return
		}
		_ = r.Reply(true, nil)
		cmd := exec.Command("git", "upload-pack", repository)
		cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
		in, err := cmd.StdinPipe() // not Stdin: Wait would wait for the client's end
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(in, ch)
			_ = in.Close()
		}()
		status := struct{ Code uint32 }{}
		if err := cmd.Run(); err != nil {
			status.Code = 1
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				status.Code = uint32(exit.ExitCode())
			}
		}
		_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(&status))
		return
	}
}
