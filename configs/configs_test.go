package configs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"postern/caddy-modules/policy"
	"postern/configs"
)

// The hosts of the specification, section 2. A change of a list is a change of what
// every run may reach, so it has to be made here as well.
var (
	baseline = strings.Fields(`
		api.openai.com *.anthropic.com api.githubcopilot.com generativelanguage.googleapis.com
		api.mistral.ai api.cohere.ai api.together.xyz openrouter.ai api.morphllm.com *.z.ai
		*.bigmodel.cn bedrock.*.amazonaws.com bedrock-runtime.*.amazonaws.com opencode.ai
		api.opencode.ai ampcode.com *.ampcode.com *.factory.ai api.workos.com *.cursor.sh
		*.githubcopilot.com github.com api.github.com raw.githubusercontent.com
		codeload.github.com objects.githubusercontent.com release-assets.githubusercontent.com
		gitlab.com *.npmjs.org registry.yarnpkg.com pypi.org files.pythonhosted.org crates.io
		static.crates.io index.crates.io *.golang.org formulae.brew.sh models.dev`)
	github = strings.Fields(`
		github.com *.github.com api.github.com codeload.github.com lfs.github.com
		objects.githubusercontent.com raw.githubusercontent.com
		release-assets.githubusercontent.com`)
	metadata  = strings.Fields(`169.254.169.254 metadata.google.internal instance-data.ec2.internal`)
	telemetry = strings.Fields(`statsig.anthropic.com *.sentry.io`)
)

func rules(tb testing.TB, names ...string) []policy.Rule {
	tb.Helper()
	var all []policy.Rule
	for _, name := range names {
		text, err := configs.List(name)
		if err != nil {
			tb.Fatal(err)
		}
		list, err := policy.ParseList(strings.NewReader(text), configs.Source(name))
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, list...)
	}
	return all
}

// shipped is the policy of the shipped Caddyfile.
func shipped(tb testing.TB) *policy.Set {
	tb.Helper()
	set, err := policy.Compile(policy.Lists{
		AlwaysDeny: rules(tb, configs.Lists("deny")...),
		Allow:      rules(tb, configs.Lists("allow")...),
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

func TestListsAreTheSpecifications(t *testing.T) {
	want := map[string][]string{
		"allow/baseline.list": baseline,
		"allow/github.list":   github,
		"deny/metadata.list":  metadata,
		"deny/telemetry.list": telemetry,
	}
	names := slices.Concat(configs.Lists("allow"), configs.Lists("deny"))
	if len(names) != len(want) {
		t.Errorf("there are the lists %v", names)
	}
	for _, name := range names {
		var got []string
		for _, r := range rules(t, name) {
			host, rest, _ := strings.Cut(r.String(), " ")
			got = append(got, host)
			if strings.ContainsAny(rest, "abcdefghijklmnopqrstuvwxyz") {
				t.Errorf("%v: %q: no shipped rule has a flag", r.Origin, r)
			}
			ssh := host == "gitlab.com" || host == "github.com" && name == "allow/github.list"
			switch {
			case strings.HasPrefix(name, "deny/"):
				if rest != "" {
					t.Errorf("%v: %q denies some ports only", r.Origin, r)
				}
			case ssh && rest != "22 443", !ssh && rest != "443":
				t.Errorf("%v: %q opens the ports %q", r.Origin, r, rest)
			}
		}
		slices.Sort(got)
		expected := slices.Clone(want[name])
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, expected)
		}
	}
}

// The effective list is the baseline and GitHub's, each host once with its ports.
func TestEffectiveList(t *testing.T) {
	set := shipped(t)
	var got []string
	for _, r := range set.Lists().Allow {
		host, _, _ := strings.Cut(r.String(), " ")
		got = append(got, host)
	}
	slices.Sort(got)
	got = slices.Compact(got)
	want := slices.Concat(baseline, github)
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for _, dead := range set.Dead() {
		t.Errorf("a shipped rule opens nothing: %s", dead.Reason)
	}
}

func TestShippedDecisions(t *testing.T) {
	set := shipped(t)
	for in, want := range map[string]policy.Code{
		"api.openai.com:443":                          policy.Allow,
		"api.anthropic.com:443":                       policy.Allow,
		"anthropic.com:443":                           policy.NotAllowed,
		"statsig.anthropic.com:443":                   policy.AlwaysDenied,
		"o1.ingest.sentry.io:443":                     policy.AlwaysDenied,
		"sentry.io:443":                               policy.NotAllowed,
		"bedrock.us-east-1.amazonaws.com:443":         policy.Allow,
		"bedrock-runtime.eu-west-1.amazonaws.com:443": policy.Allow,
		"s3.us-east-1.amazonaws.com:443":              policy.NotAllowed,
		"bedrock.evil.us-east-1.amazonaws.com:443":    policy.NotAllowed,
		"github.com:443":                              policy.Allow,
		"github.com:22":                               policy.Allow,
		"github.com:80":                               policy.PortNotAllowed,
		"gitlab.com:22":                               policy.Allow,
		"api.github.com:22":                           policy.PortNotAllowed,
		"uploads.github.com:443":                      policy.Allow,
		"github.com.evil.example:443":                 policy.NotAllowed,
		"sum.golang.org:443":                          policy.Allow,
		"169.254.169.254:80":                          policy.AlwaysDenied,
		"metadata.google.internal:80":                 policy.AlwaysDenied,
		"evil.example:443":                            policy.NotAllowed,
		"127.0.0.1:2019":                              policy.NotAllowed,
	} {
		target, err := policy.ParseTarget(in, policy.SchemeTCP)
		if err != nil {
			t.Fatal(err)
		}
		if d := set.Decide(target); d.Code != want {
			t.Errorf("%s: got %v, want %v: %s", in, d.Code, want, d.Reason())
		}
	}
}

// No name of the lists may lead to this machine or its neighbours: whoever
// controls the name controls the answer.
func TestNoPrivateAnswers(t *testing.T) {
	set := shipped(t)
	target, err := policy.ParseTarget("github.com:443", policy.SchemeTLS)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "fe80::1", "fc00::1"} {
		if d := set.DecideAddr(target, netip.MustParseAddr(addr)); d.Allowed {
			t.Errorf("%s: %s", addr, d.Reason())
		}
	}
	if d := set.DecideAddr(target, netip.MustParseAddr("140.82.112.5")); !d.Allowed {
		t.Error(d.Reason())
	}
}

// A line that repeats another of its file adds nothing. Across files it may: each
// stands for itself, since a policy may import one alone.
func TestNoRuleTwice(t *testing.T) {
	for _, name := range slices.Concat(configs.Lists("allow"), configs.Lists("deny")) {
		seen := map[string]policy.Origin{}
		for _, r := range rules(t, name) {
			if first, twice := seen[r.String()]; twice {
				t.Errorf("%s repeats %s (%s)", r.Origin, first, r)
			}
			seen[r.String()] = r.Origin
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

func TestListNamesLine(t *testing.T) {
	for _, r := range rules(t, "deny/telemetry.list") {
		if r.String() == "*.sentry.io" {
			if got := r.Origin.String(); got != "configs/deny/telemetry.list:4" {
				t.Errorf("got %s", got)
			}
			return
		}
	}
	t.Error("no *.sentry.io")
}

func TestListUnknown(t *testing.T) {
	for _, name := range []string{"allow/nope.list", "baseline.list", "", "../configs.go", "allow"} {
		text, err := configs.List(name)
		if text != "" || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "allow/baseline.list") {
			t.Errorf("%q: got %q, %v", name, text, err)
		}
	}
}

// What is embedded is what lies in the folder: a list that go:embed misses would
// be edited in vain.
func TestEmbeddedIsOnDisk(t *testing.T) {
	for _, dir := range []string{"allow", "deny"} {
		onDisk, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if names := configs.Lists(dir); len(names) != len(onDisk) {
			t.Errorf("%s holds %d files, embedded are %v", dir, len(onDisk), names)
		}
		for _, entry := range onDisk {
			name := dir + "/" + entry.Name()
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := configs.List(name)
			if err != nil || got != string(want) {
				t.Errorf("%s is not embedded as it is: %v", name, err)
			}
		}
	}
}

func ExampleList() {
	text, err := configs.List("deny/telemetry.list")
	if err != nil {
		log.Fatal(err)
	}
	rules, err := policy.ParseList(strings.NewReader(text), configs.Source("deny/telemetry.list"))
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rules {
		fmt.Println(r.Origin, r)
	}
	// Output:
	// configs/deny/telemetry.list:3 statsig.anthropic.com
	// configs/deny/telemetry.list:4 *.sentry.io
}
