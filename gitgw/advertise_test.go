package gitgw

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAdvertisement(t *testing.T) {
	const caps = "multi_ack thin-pack side-band side-band-64k ofs-delta shallow symref=HEAD:refs/heads/main object-format=sha1 agent=git/2.39.5"
	open := "# service=git-upload-pack\n"
	ours := "\x00report-status report-status-v2 side-band-64k quiet atomic ofs-delta delete-refs push-options object-format=sha1 agent=postern\n"
	head := pkt("# service=git-receive-pack\n") + "0000"
	for _, c := range []struct{ name, in, want string }{
		{
			"refs", pkt(open) + "0000" + pkt(idA+" HEAD\x00"+caps+"\n") + pkt(idA+" refs/heads/main\n") + pkt(idB+" refs/pull/1/head\n") +
				pkt(idB+" refs/tags/v1\n") + pkt(idA+" refs/tags/v1^{}\n") + pkt("shallow "+idA) + "0000",
			head + pkt(idA+" refs/heads/main"+ours) + pkt(idB+" refs/tags/v1\n") + "0000",
		},
		{
			"first is a ref", pkt(open) + "0000" + pkt(idA+" refs/heads/main\x00"+caps+"\n") + "0000",
			head + pkt(idA+" refs/heads/main"+ours) + "0000",
		},
		{"empty, said so", pkt(open) + "0000" + pkt(zero40+" capabilities^{}\x00"+caps+"\n") + "0000", head + pkt(zero40+" capabilities^{}"+ours) + "0000"},
		{"empty, silent", pkt(open) + "00000000", head + pkt(zero40+" capabilities^{}"+ours) + "0000"},
		{"only hidden", pkt(open) + "0000" + pkt(idA+" refs/pull/1/head\x00"+caps+"\n") + "0000", head + pkt(zero40+" capabilities^{}"+ours) + "0000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ad, err := openAdvertisement(strings.NewReader(c.in), "git-upload-pack")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := writeAdvertisement(&out, ad, offered(ad.capabilities.format())); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("%q\nwant %q", out.String(), c.want)
			}
		})
	}
}

func TestAdvertisementErrors(t *testing.T) {
	open := pkt("# service=git-upload-pack\n")
	for name, in := range map[string]string{
		"nothing":             "",
		"a web page":          "<html>",
		"other service":       pkt("# service=git-receive-pack\n") + "0000" + pkt(idA+" HEAD\x00a") + "0000",
		"version 2":           pkt("version 2\n") + pkt("agent=x") + "0000",
		"no flush":            open,
		"no list":             open + "0000",
		"ERR":                 open + "0000" + pkt("ERR access denied"),
		"no capabilities":     open + "0000" + pkt(idA+" HEAD\n") + "0000",
		"unknown hash":        open + "0000" + pkt(idA+" HEAD\x00object-format=md5\n") + "0000",
		"control characters":  open + "0000" + pkt(idA+" HEAD\x00a\x1bb\n") + "0000",
		"cut after the first": open + "0000" + pkt(idA+" refs/heads/a\x00x\n"),
		"cut in a line":       open + "0000" + pkt(idA+" refs/heads/a\x00x\n") + "0040" + idA,
	} {
		ad, err := openAdvertisement(strings.NewReader(in), "git-upload-pack")
		if err == nil {
			err = writeAdvertisement(io.Discard, ad, offered("sha1"))
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	ad, err := openAdvertisement(strings.NewReader(open+"0000"+pkt(idA+" refs/heads/a\x00x\n")+"0000"), "git-upload-pack")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeAdvertisement(errWriter{}, ad, offered("sha1")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("%v", err)
	}
}

type errWriter struct{}

func (errWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestCapabilities(t *testing.T) {
	c, err := parseCapabilities(" report-status-v2 side-band-64k quiet atomic=1 object-format=sha256 agent=git/2\u00a01 push-cert=nonce unknown")
	want := Capabilities{ReportStatusV2: true, SideBand64k: true, Quiet: true, ObjectFormat: "sha256", Agent: "git/21"}
	if err != nil || c != want {
		t.Errorf("%+v %v", c, err)
	}
	if got := c.String(); got != "report-status-v2 side-band-64k quiet object-format=sha256 agent=git/21" {
		t.Errorf("%q", got)
	}
	if got := offered("sha1"); strings.Contains(got.String(), "push-cert") || !got.Atomic || !got.DeleteRefs {
		t.Errorf("offer: %s", got)
	}
}

func TestForUpstream(t *testing.T) {
	all := Capabilities{ReportStatus: true, ReportStatusV2: true, SideBand64k: true, Quiet: true, Atomic: true, OFSDelta: true, DeleteRefs: true, PushOptions: true}
	old := Capabilities{ReportStatus: true, SideBand64k: true}
	for _, c := range []struct {
		name            string
		client, offered Capabilities
		want, lacks     string
	}{
		{"today's git", Capabilities{ReportStatusV2: true, SideBand64k: true, ObjectFormat: "sha1", Agent: "git/2"}, all, "report-status-v2 side-band-64k object-format=sha1 agent=git/2", ""},
		{"old forge", Capabilities{ReportStatusV2: true, SideBand64k: true, Quiet: true}, old, "report-status side-band-64k", ""},
		{"old client", Capabilities{ReportStatus: true}, all, "report-status side-band-64k", ""},
		{"atomic lost", Capabilities{ReportStatus: true, Atomic: true}, old, "report-status side-band-64k", "does not support --atomic push"},
		{"options lost", Capabilities{ReportStatus: true, PushOptions: true}, old, "report-status side-band-64k", "does not support push options"},
		{"other hash", Capabilities{ReportStatus: true, ObjectFormat: "sha256"}, all, "report-status side-band-64k object-format=sha256", "has a sha1 repository, and this one is sha256"},
		{"no report", Capabilities{ReportStatus: true}, Capabilities{SideBand64k: true}, "side-band-64k", "sends no status report"},
	} {
		got := c.client.forUpstream(c.offered)
		if got.String() != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if lacks := missing(c.client, got, c.offered); lacks != c.lacks {
			t.Errorf("%s: lacks %q, want %q", c.name, lacks, c.lacks)
		}
	}
}

func TestNewForge(t *testing.T) {
	for _, c := range []struct{ host, api, git, wantAPI, wantGit string }{
		{"github.com", "", "", "https://api.github.com/", "https://github.com/"},
		{"GitHub.com", "", "", "https://api.github.com/", "https://github.com/"},
		{"ghe.example.org", "", "", "https://ghe.example.org/api/v3/", "https://ghe.example.org/"},
		{"x.ghe.com", "https://api.x.ghe.com", "https://x.ghe.com/sub", "https://api.x.ghe.com/", "https://x.ghe.com/sub/"},
		{"github.com", "http://127.0.0.1:1/api/v3/", "http://127.0.0.1:1", "http://127.0.0.1:1/api/v3/", "http://127.0.0.1:1/"},
		{"bad host", "", "", "", ""},
		{"github.com", "ftp://x/", "", "", ""},
		{"github.com", "", "https://user:pw@github.com/", "", ""},
		{"github.com", "", "https://github.com/?a=b", "", ""},
		{"github.com", "", "/relative", "", ""},
		{"github.com", "http://[::1", "", "", ""},
		{"github.com", "https://api.github.com:99999/", "", "", ""},
		{"github.com", "", "https://github.com:0/", "", ""},
		{"github.com", "", "https://github.com:/", "", ""},
		{"github.com", "", "https://user:pw@github.com:x/", "", ""},
	} {
		f, err := NewForge(c.host, c.api, c.git)
		if c.wantAPI == "" {
			if err == nil || strings.Contains(err.Error(), "pw") {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || f.API.String() != c.wantAPI || f.Git.String() != c.wantGit {
			t.Errorf("%+v: %v %v %v", c, f.API, f.Git, err)
			continue
		}
		if got := f.repoURL(mustRepo("github.com/acme/app"), "info", "refs").String(); got != c.wantGit+"acme/app.git/info/refs" {
			t.Errorf("%s", got)
		}
	}
	if f := GitHub(); f.Host != "github.com" || f.repoURL(mustRepo("github.com/a/b"), "git-receive-pack").String() != "https://github.com/a/b.git/git-receive-pack" {
		t.Errorf("%+v", f)
	}
}
