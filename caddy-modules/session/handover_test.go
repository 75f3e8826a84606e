package session

import (
	"reflect"
	"strings"
	"testing"

	"postern/caddy-modules/session/lease"
)

// A session that was changed is the same with the next appliance: what its launcher has
// by the time a change is answered is what it lends again.
func TestTermsOutliveTheAppliance(t *testing.T) {
	kept, gone, added := echo(t), echo(t), echo(t)
	for name, c := range map[string]struct {
		patches []Patch
		want    map[string]int // by target
		terms   lease.Terms
	}{
		"rules and limits": {
			[]Patch{{EgressAllowlist: new([]string{})}, {EgressAllowlist: new([]string{rule(added)}), Limits: &Caps{Tunnels: 7}}},
			map[string]int{kept: 200, gone: 403, added: 200},
			lease.Terms{NetworkEnabled: true, EgressAllowlist: []string{rule(added)}, Limits: Caps{Tunnels: 7}},
		},
		"policy": {
			[]Patch{{Policy: new("other"), EgressAllowlist: new([]string{})}},
			map[string]int{kept: 403, gone: 403},
			lease.Terms{Policy: "other", NetworkEnabled: true},
		},
		"network": {
			[]Patch{{NetworkEnabled: new(false)}},
			map[string]int{kept: 403, gone: 403},
			lease.Terms{EgressAllowlist: []string{rule(gone)}},
		},
		"back again": {
			[]Patch{{NetworkEnabled: new(false)}, {NetworkEnabled: new(true)}},
			map[string]int{kept: 200, gone: 200},
			lease.Terms{NetworkEnabled: true, EgressAllowlist: []string{rule(gone)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := runDir(t)
			first := newRegistryIn(t, dir)
			first.Push(generation(t, first, rule(kept)))
			path := openDoors(t, first)
			p := pair(t)
			hello := lease.Hello{Spec: lease.Spec{ID: "run", EgressAllowlist: []string{rule(gone)}}}
			l, err := lend(t, path, hello, p)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := first.Grant("run", GrantRequest{Allow: []string{"a.example"}}); err != nil {
				t.Fatal(err)
			}
			for _, patch := range c.patches {
				if _, err := first.Patch("run", patch); err != nil {
					t.Fatal(err)
				}
			}
			if err := first.Destruct(); err != nil {
				t.Fatal(err)
			}
			got := l.Terms()
			if got == nil {
				t.Fatal("the launcher knows of no change")
			}
			if len(got.EgressAllowlist) == 0 {
				got.EgressAllowlist = nil
			}
			if !reflect.DeepEqual(*got, c.terms) {
				t.Errorf("the launcher has %+v, want %+v", *got, c.terms)
			}

			second := newRegistryIn(t, dir)
			second.Push(generation(t, second, rule(kept)))
			openDoors(t, second)
			hello.Resume = &lease.Resume{Born: l.Answer().Born}
			hello.Amend(*got)
			if _, err := lend(t, path, hello, p); err != nil {
				t.Fatal(err)
			}
			for target, want := range c.want {
				if tun := connect(t, "tcp", p.HTTP.Addr().String(), target); tun.status != want {
					t.Errorf("%s: %d %s, want %d", target, tun.status, tun.reason, want)
				}
			}
			e, err := second.Policy("run")
			if err != nil || e.Limits != c.terms.Limits {
				t.Errorf("limits %+v, %v", e.Limits, err)
			}
		})
	}
}

// A launcher that does not take a change is no one to lend the session again.
func TestChangeThatIsNotTakenEndsTheSession(t *testing.T) {
	upstream := echo(t)
	r, _, _, path := leased(t, rule(upstream))
	l, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run"}}, pair(t))
	if err != nil {
		t.Fatal(err)
	}
	s := r.find("run")
	eventually(t, "it has its answer", func() bool {
		s.launcher.mu.Lock()
		defer s.launcher.mu.Unlock()
		return s.launcher.lease != nil
	})
	// Its connection breaks under the change.
	if _, err := r.Patch("run", Patch{Limits: &Caps{Tunnels: 1}}); err != nil {
		t.Fatal(err)
	}
	s.launcher.mu.Lock()
	_ = s.launcher.lease.Close()
	s.launcher.mu.Unlock()
	_, err = r.Patch("run", Patch{NetworkEnabled: new(false)})
	if code := codeOf(err); code != lease.CodeUnavailable && code != lease.CodeNotFound {
		t.Errorf("the change: %v", err)
	}
	<-l.Done()
	eventually(t, "the end", func() bool { _, there := r.Lookup("run"); return !there })
	if codeOf(err) != lease.CodeUnavailable {
		return // it had ended before the change
	}
	_, err = lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run"}, Resume: &lease.Resume{Born: r.Born()}}, pair(t))
	if codeOf(err) != lease.CodeEnded {
		t.Errorf("lent again: %v", err)
	}
}

// What could not be lent again for its size is no change.
func TestChangeMustFitAHello(t *testing.T) {
	r, _, _, path := leased(t)
	if _, err := lend(t, path, lease.Hello{Spec: lease.Spec{ID: "run"}}, pair(t)); err != nil {
		t.Fatal(err)
	}
	long := make([]string, 130)
	for i := range long {
		long[i] = strings.Repeat("a", 40) + "." + strings.Repeat("b.", 200) + "example"
	}
	if _, err := r.Patch("run", Patch{EgressAllowlist: &long}); codeOf(err) != lease.CodeBadRequest || !strings.Contains(err.Error(), "lend again") {
		t.Errorf("got %v", err)
	}
	if info, _ := r.Lookup("run"); len(info.EgressAllowlist) > 0 {
		t.Error("it was changed all the same")
	}
}
