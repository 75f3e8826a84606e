package gitgateway

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

var placeIn = regexp.MustCompile(`Caddyfile:\d+`)

// adapt reads a git_gateway as Caddy does. The faulty line is the one that ends in `# !`.
func adapt(lines string) (line int, err error) {
	text := "{\n\tauto_https off\n}\nhttp://git.internal {\n\tbind sandbox/git\n\t" + lines + "\n}\n"
	for i, l := range strings.Split(text, "\n") {
		if strings.HasSuffix(l, "# !") {
			line = i + 1
		}
	}
	_, _, err = caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return line, err
}

// TestFaultsHavePlaces gives every directive nothing, too much, a wrong kind, an option
// it does not have, a block it does not take: the error names the line where that stands
// and no other, and how the line is written.
func TestFaultsHavePlaces(t *testing.T) {
	in := func(lines string) string { return "git_gateway {\n" + lines + "\n}" }
	repo := func(lines string) string { return in("lfs on\nrepo github.com/acme/app {\n" + lines + "\n}\nprefix x") }
	for _, c := range []struct{ text, want string }{
		{"git_gateway # !", "git_gateway needs a block"},
		{"git_gateway { # !\n}", "the block of git_gateway is empty"},
		{"git_gateway x { # !\nlfs on\n}", "want git_gateway { … }"},
		{in("lsf on # !"), `unrecognized git_gateway option "lsf"; want token, rules, approver, forge, repo, lfs, spool or prefix`},

		{in("lfs # !"), "want lfs on|off"},
		{in("spool # !"), "want spool DIR [{ total SIZE; run SIZE }]"},
		{in("spool a # !"), "name an absolute path"},
		{in("spool /a {\ntotal 5 # !\n\n}"), "want a size with its unit"},
		{in("spool /a {\nrun # !\n\n}"), "want run SIZE"},
		{in("spool /a {\nroom 1GB # !\n\n}"), "want run or total"},
		{in("lfs on off # !"), "want lfs on|off"},
		{in("lfs yes # !"), "want lfs on|off"},
		{in(`lfs "" # !`), "want lfs on|off"},
		{in("lfs on { # !\nx\n}"), "lfs takes no block"},
		{in("lfs on\nlfs on # !"), "lfs is given twice"},
		{in("prefix # !"), "want prefix TEXT"},
		{in("prefix two words # !"), "in quotes"},
		{in(`prefix " " # !`), "prefix is empty"},
		{in("prefix x { # !\ny\n}"), "prefix takes no block"},

		{in("token # !"), "want token command|github_app|static [ARG…]"},
		{in("token github # !"), `unknown token "github"; want command, github_app, static`},
		{in("token github_app # !"), "want token github_app APP_ID { key_file PATH }"},
		{in("token github_app 1 2 # !"), "want token github_app APP_ID { key_file PATH }"},
		{in("token github_app 1 # !"), "key_file is missing; want token github_app APP_ID { key_file PATH }"},
		{in("token github_app 1 { # !\nforge github.com\n}"), "key_file is missing"},
		{in("token github_app 1 {\nkey_file # !\n}"), "want key_file PATH"},
		{in("token github_app 1 {\nkey_file a b # !\nforge x\n}"), "want key_file PATH"},
		{in("token github_app 1 {\nkey_file \"\" # !\nforge x\n}"), "key_file is empty; want key_file PATH"},
		{in("token github_app 1 {\nkey_file a { # !\nforge x\n}\n}"), "key_file takes no block"},
		{in("token github_app 1 {\nkey a # !\nkey_file b\n}"), `unrecognized github_app option "key"; want forge or key_file`},
		{in("token github_app 1 {\nkey_file a\nkey_file b # !\n\n}"), "key_file is given twice"},
		{in("token github_app \"\" { # !\nkey_file a\n}"), "app_id is missing"},
		{in("token static # !"), "write is missing; want token static { write TOKEN; read TOKEN }"},
		{in("token static abc # !"), "want token static { write TOKEN"},
		{in("token static { # !\nread abc\n}"), "write is missing; want"},
		{in("token static { # !\nread abc\nwrite abc\n}"), "a session must not have it"},
		{in("token static {\nread # !\nwrite abc\n}"), "want read TOKEN"},
		{in("token static {\nwrite abc\nreed abc # !\n}"), `unrecognized static option "reed"`},
		{in("token command # !"), "want token command PROGRAM [ARG…]"},
		{in(`token command "" # !`), "command is missing"},
		{in("token command x {\ntimeout 10 # !\n}"), `parse timeout "10": want a time with its unit, as in 500ms, 10s or 2m`},
		{in("token command x {\ntimeout # !\n}"), "want timeout DURATION, as in 10s"},
		{in("token command x {\ntimeout 0s # !\n\n}"), "not a positive time"},
		{in("token command x {\ntime 10s # !\n}"), `unrecognized command option "time"; want timeout`},

		{in("rules # !"), "want rules http [ARG…]"},
		{in("rules nis # !"), `unknown rules "nis"; want http`},
		{in("rules http # !"), "want rules http unix//PATH|http://127.0.0.1:PORT/PATH"},
		{in("rules http unix//a unix//b # !"), "want rules http unix//PATH|"},
		{in("rules http http://127.0.0.1:99999/x # !"), `"99999" is no port; want 1 to 65535`},
		{in("rules http http://127.0.0.1:0/x # !"), "want 1 to 65535"},
		{in("rules http http://example.com/x { # !\ntimeout 1s\n}"), "want unix//PATH or http://127.0.0.1:PORT/PATH"},
		{in("rules http unix//a {\ntimeout 2 # !\n}"), "with its unit"},
		{in("rules http unix//a {\n\n\ntimeout 1s 2s # !\n}"), "want timeout DURATION"},
		{in("rules http unix//a {\nremember 2m # !\n}"), "want timeout"},

		{in("approver # !"), "want approver http|queue [ARG…]"},
		{in("approver mail # !"), `unknown approver "mail"; want http, queue`},
		{in("approver queue x # !"), "want approver queue [{ timeout DURATION; remember DURATION }]"},
		{in("approver queue {\ntimeout 1m\nremember x # !\n}"), `parse remember "x": want a time with its unit`},
		{in("approver queue {\ntimeout 1 # !\nremember 2\n}"), `parse timeout "1"`},
		{in("approver queue {\ntimeout 61m # !\nremember 2h\n}"), "timeout 1h1m0s is longer than what is asked about may wait; name an hour at most"},
		{in("approver http unix//a {\nremember 2h\ntimeout 24h # !\n}"), "timeout 24h0m0s is longer than"},
		{in("approver http # !"), "want approver http unix//PATH|"},
		{in("approver http https://127.0.0.1:1/ # !"), "want unix//PATH or"},
		{in("approver http unix//run/ # !"), "names a folder"},
		{in("approver queue\napprover queue # !"), "approver is given twice"},

		{in("forge # !"), "want forge HOST"},
		{in("forge a.example b.example # !"), "want forge HOST"},
		{in("forge https://a.example # !"), "configure forge"},
		{in("forge a.example {\napi # !\n}"), "want api URL"},
		{in("forge a.example {\napi \"\" # !\n}"), "want api URL"},
		{in("forge a.example {\napi https://a.example:99999/ # !\n}"), "want 1 to 65535"},
		{in("forge a.example {\ngit a.example # !\n}"), "want http(s)://HOST/PATH/"},
		{in("forge a.example {\nurl https://a.example/ # !\n}"), `unrecognized forge option "url"; want api or git`},
		{in("forge a.example { # !\n}"), "the block of forge a.example is empty"},
		{in("forge a.example\nforge A.example # !"), "given twice"},

		{in("repo # !"), "want repo HOST/OWNER/NAME"},
		{in("repo github.com/a/b github.com/a/c # !"), "want repo HOST/OWNER/NAME"},
		{in("repo acme/app # !"), "want HOST/OWNER/NAME"},
		{in("repo github.com/acme/app { # !\n}"), "the block of repo github.com/acme/app is empty"},
		{in("repo gitlab.com/acme/app { # !\npush main\n}"), "add `forge gitlab.com`"},
		{repo("pusch main # !"), `unrecognized repo option "pusch"; want push, ask, deny`},
		{repo("push # !"), "want push REF… [create|update|delete|force…]"},
		{repo("ask # !"), "want ask REF…"},
		{repo("deny # !"), "want deny REF…"},
		{repo("push update # !"), "names no ref"},
		{repo("push main updte # !"), "did you mean update?"},
		{repo("push main {\nupdate # !\n}"), `unrecognized rule option "update"; want reason`},
		{repo("push a** # !"), "** must be a whole segment"},
		{repo("push main {\nreason # !\n}"), "want reason TEXT"},
		{repo("push main {\nreason two words # !\n}"), "in quotes where it has blanks"},
		{repo("push main {\nreason \"\" # !\nmax_refs 1\n}"), "reason is empty"},
		{repo("push main {\nreason x { # !\ny\n}\n}"), "reason takes no block"},
		{repo("push main { # !\n}"), "the block of push is empty"},
		{repo("deny main { # !\nreason x\nmax_refs 1\n}"), "a deny refuses whatever the push holds"},
		{repo("push main {\nmax_refs # !\n}"), "want max_refs N"},
		{repo("max_refs # !"), "want max_refs N"},
		{repo("max_refs 1 2 # !"), "want max_refs N"},
		{repo("max_refs many # !"), "want a number from 1 to 5000"},
		{repo("max_pack # !"), "want max_pack SIZE, as in 50MB or 1GiB"},
		{repo("max_pack 50 # !"), "want a size with its unit, as in 50MB or 1GiB"},
		{repo("max_pack 50 MB # !"), "want max_pack SIZE"},
		{repo("max_pack 9GiB # !"), "more than the 2GiB"},
		{repo("secrets # !"), "want secrets deny"},
		{repo("secrets off # !"), "want deny, not"},
		{repo("protect # !"), "want protect PATH…"},
		{repo("protect /etc # !"), "below the repository's root"},
		{repo("protect x { # !\ny\n}"), "protect takes no block"},
		{repo("options # !"), "want options deny|GLOB…"},
		{repo("options deny x # !"), "stands alone"},
	} {
		line, err := adapt(c.text)
		if err == nil {
			t.Errorf("%s\nwas read", c.text)
			continue
		}
		places := placeIn.FindAllString(err.Error(), -1)
		ok := len(places) > 0 && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "unexpected line ending")
		for _, p := range places {
			ok = ok && p == fmt.Sprintf("Caddyfile:%d", line)
		}
		if !ok {
			t.Errorf("%s\ngives %v\nwant line %d, %s", c.text, err, line, c.want)
		}
	}
}

// What two lines do wrong together names both.
func TestFaultsOfTwoLines(t *testing.T) {
	for text, want := range map[string][]string{
		"repo github.com/a/b {\npush x\n}\nrepo github.com/A/b":   {"Caddyfile:7", "Caddyfile:10"},
		"repo github.com/a*/b {\npush x\n}\nrepo github.com/*a/b": {"Caddyfile:7", "Caddyfile:10", "equally well"},
	} {
		_, err := adapt("git_gateway {\n" + text + "\n}")
		if err == nil {
			t.Errorf("%s\nwas read", text)
			continue
		}
		if places := placeIn.FindAllString(err.Error(), -1); len(places) != 2 {
			t.Errorf("%v names %v", err, places)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v, want %s", err, w)
			}
		}
	}
}
