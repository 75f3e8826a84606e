package policy

import (
	"context"
	"strings"
	"testing"
)

func TestApprovedIsOneTarget(t *testing.T) {
	parse := func(lines ...string) []Rule {
		t.Helper()
		rules, err := ParseList(strings.NewReader(strings.Join(lines, "\n")), "test.list")
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	target := func(text string) Target {
		t.Helper()
		got, err := ParseTarget(text, SchemeTCP)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	from := Origin{File: "approved by ann"}
	ask, err := Compile(Lists{Ask: parse("*.example.com"), Allow: parse("open.example.com")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	deny, err := Compile(Lists{Ask: parse("*.example.com"), Deny: parse("a.example.com")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := WithApproval(context.Background(), target("a.example.com:443"), from)
	if got, ok := Approval(ctx); !ok || got != target("a.example.com:443") {
		t.Errorf("%v %v", got, ok)
	}
	if _, ok := Approval(context.Background()); ok {
		t.Error("an approval from nowhere")
	}
	if d := ask.Approved(ctx).Decide(target("a.example.com:443")); !d.Allowed || d.Source != "approved by ann" {
		t.Errorf("%+v", d)
	}
	for _, other := range []string{"a.example.com:80", "a.example.com:22", "b.example.com:443", "x.a.example.com:443", "other.example:443"} {
		if d := ask.Approved(ctx).Decide(target(other)); d.Allowed {
			t.Errorf("%s: %s", other, d.Reason())
		}
	}
	if ask.Approved(context.Background()) != ask {
		t.Error("another set without an approval")
	}
	for name, s := range map[string]*Set{"denied": deny, "off": Off(), "closed": Closed("it is gone"), "nil": nil} {
		if got := s.Approved(ctx); got != s || got.Decide(target("a.example.com:443")).Allowed {
			t.Errorf("%s: an approval opened it", name)
		}
	}
	if open := WithApproval(context.Background(), target("open.example.com:443"), from); ask.Approved(open) != ask {
		t.Error("another set where a rule allows the target anyway")
	}
}
