package configs_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"postern/caddy-modules/policy"
	"postern/configs"
)

// rules parses every list of a folder.
func rules(t *testing.T, folder string) []policy.Rule {
	t.Helper()
	var all []policy.Rule
	for _, name := range configs.Lists(folder) {
		f, err := configs.FS.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		list, err := policy.ParseList(f, "configs/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			t.Errorf("%s holds no rule", name)
		}
		all = append(all, list...)
	}
	return all
}

func compiled(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.Compile(policy.Lists{AlwaysDeny: rules(t, "deny"), Allow: rules(t, "allow")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestBaseline holds what the baseline promises, host by host.
func TestBaseline(t *testing.T) {
	set := compiled(t)
	for host, want := range map[string]policy.Code{
		"api.openai.com":                           policy.Allow,
		"api.anthropic.com":                        policy.Allow,
		"anthropic.com":                            policy.NotAllowed,
		"bedrock.eu-west-1.amazonaws.com":          policy.Allow,
		"bedrock-runtime.us-east-1.amazonaws.com":  policy.Allow,
		"bedrock.a.b.amazonaws.com":                policy.NotAllowed,
		"s3.eu-west-1.amazonaws.com":               policy.NotAllowed,
		"github.com":                               policy.Allow,
		"api.github.com":                           policy.Allow,
		"lfs.github.com":                           policy.Allow,
		"raw.githubusercontent.com":                policy.Allow,
		"gist.githubusercontent.com":               policy.NotAllowed,
		"github.com.evil.example":                  policy.NotAllowed,
		"evilgithub.com":                           policy.NotAllowed,
		"gitlab.com":                               policy.Allow,
		"pypi.org":                                 policy.Allow,
		"crates.io":                                policy.Allow,
		"models.dev":                               policy.Allow,
		"evil.example":                             policy.NotAllowed,
		"statsig.anthropic.com":                    policy.AlwaysDenied,
		"o1.ingest.sentry.io":                      policy.AlwaysDenied,
		"metadata.google.internal":                 policy.AlwaysDenied,
		"instance-data.ec2.internal":               policy.AlwaysDenied,
		"169.254.169.254":                          policy.AlwaysDenied,
		"[::ffff:169.254.169.254]":                 policy.AlwaysDenied,
		"fd00:ec2::254":                            policy.AlwaysDenied,
		"127.0.0.1":                                policy.NotAllowed,
		"localhost":                                policy.NotAllowed,
		"bedrock-runtime.us-east-1.amazonaws.com.": policy.Allow,
	} {
		t.Run(host, func(t *testing.T) {
			h, err := policy.ParseHost(host)
			if err != nil {
				t.Fatal(err)
			}
			target, err := policy.NewTarget(h, 443, policy.SchemeTLS)
			if err != nil {
				t.Fatal(err)
			}
			d := set.Decide(target)
			if d.Code != want || d.Allowed != (want == policy.Allow) {
				t.Errorf("%s: %s", d.Code, d.Reason())
			}
		})
	}
}

// TestNoOtherPorts holds that the baseline opens the web and nothing else: a
// mail server on an allowed host is not a part of it.
func TestNoOtherPorts(t *testing.T) {
	set := compiled(t)
	for _, port := range []uint16{25, 587, 3306, 8080} {
		h, err := policy.ParseHost("github.com")
		if err != nil {
			t.Fatal(err)
		}
		target, err := policy.NewTarget(h, port, policy.SchemeTCP)
		if err != nil {
			t.Fatal(err)
		}
		if d := set.Decide(target); d.Allowed {
			t.Errorf("port %d: %s", port, d.Reason())
		}
	}
}

// TestNoPrivateAnswers holds that no name of the baseline may lead to this
// machine or its neighbours: whoever controls the name controls the answer.
func TestNoPrivateAnswers(t *testing.T) {
	for _, r := range rules(t, "allow") {
		if strings.Contains(r.String(), " private") || strings.Contains(r.String(), " tcp") {
			t.Errorf("%s: %s carries a flag", r.Origin, r)
		}
	}
	set := compiled(t)
	h, err := policy.ParseHost("github.com")
	if err != nil {
		t.Fatal(err)
	}
	target, err := policy.NewTarget(h, 443, policy.SchemeTLS)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "fe80::1", "fc00::1"} {
		if d := set.DecideAddr(target, netip.MustParseAddr(addr)); d.Allowed {
			t.Errorf("%s: %s", addr, d.Reason())
		}
	}
}

// TestNoRuleTwice finds lines that add nothing: a list that grows by accretion
// says less with every line.
func TestNoRuleTwice(t *testing.T) {
	for _, folder := range []string{"allow", "deny"} {
		seen := map[string]policy.Origin{}
		for _, r := range rules(t, folder) {
			if first, twice := seen[r.String()]; twice {
				t.Errorf("%s repeats %s (%s)", r.Origin, first, r)
			}
			seen[r.String()] = r.Origin
		}
	}
}

// TestEmbedsWhatIsHere holds that the binary has the files of this folder: a list
// with another ending would be edited and never used.
func TestEmbedsWhatIsHere(t *testing.T) {
	for _, folder := range []string{"allow", "deny"} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		names := configs.Lists(folder)
		if len(entries) != len(names) {
			t.Errorf("%s holds %d files, %d are embedded", folder, len(entries), len(names))
		}
		for _, name := range names {
			embedded, err := configs.FS.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if onDisk, err := os.ReadFile(name); err != nil || string(onDisk) != string(embedded) {
				t.Errorf("%s differs from the embedded one (%v)", name, err)
			}
		}
	}
}

func TestUnknownFolder(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("an unknown folder gives an empty list")
		}
	}()
	configs.Lists("snippets")
}
