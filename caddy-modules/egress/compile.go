package egress

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"postern/caddy-modules/policy"
	"postern/caddy-modules/proxy"
)

// builtinPolicy is the one policy of a configuration that names none.
const builtinPolicy = "agent"

// defaultPolicy returns the name of the policy that sessions without one get.
// Nothing is guessed: among several, one must be named.
func (app *App) defaultPolicy() (string, error) {
	names := slices.Sorted(maps.Keys(app.Policies))
	if len(names) == 0 {
		names = []string{builtinPolicy}
	}
	switch {
	case app.DefaultPolicy == "" && len(names) == 1:
		return names[0], nil
	case app.DefaultPolicy == "":
		return "", fmt.Errorf("default_policy is missing: name one of %s", strings.Join(names, ", "))
	case !slices.Contains(names, app.DefaultPolicy):
		return "", fmt.Errorf("default_policy %q is no policy: name one of %s", app.DefaultPolicy, strings.Join(names, ", "))
	}
	return app.DefaultPolicy, nil
}

// compile makes the sets of all policies, and names the default one. It is all
// that the commands need of a configuration, so it touches nothing outside it but
// the list files, and those where files says so.
func (app *App) compile(own policy.OwnFunc, files bool) (map[string]*policy.Set, string, error) {
	name, err := app.defaultPolicy()
	if err != nil {
		return nil, "", err
	}
	var always []policy.Rule
	switch {
	case app.AlwaysDeny == nil:
		always, err = builtin("deny")
	case len(app.AlwaysDeny) == 0:
		err = fmt.Errorf("always_deny is empty: leave it out for the built-in list")
	default:
		always, err = compileRules(app.AlwaysDeny, "always_deny")
	}
	if err != nil {
		return nil, "", err
	}
	configured := app.Policies
	if len(configured) == 0 {
		configured = map[string]*Policy{builtinPolicy: {Baseline: true}}
	}
	shared := policy.Lists{AlwaysDeny: always}
	if shared.Ranges, err = app.DNS.ranges(); err != nil {
		return nil, "", err
	}
	sets := make(map[string]*policy.Set, len(configured))
	for name, pol := range configured {
		if !policyName.MatchString(name) {
			return nil, "", fmt.Errorf("%q is not a policy name (1 to 64 of A-Z a-z 0-9 _ - .)", name)
		}
		if pol == nil {
			return nil, "", fmt.Errorf("policy %s is null: write {} for one that allows nothing", name)
		}
		if sets[name], err = pol.compile(name, shared, own, files); err != nil {
			return nil, "", err
		}
	}
	return sets, name, nil
}

// compile makes the set of one policy, with what lists has for all. Its list files are read where files says so:
// the adapter, which has no need to, leaves them to whoever loads its result.
func (pol *Policy) compile(name string, lists policy.Lists, own policy.OwnFunc, files bool) (*policy.Set, error) {
	lists.AskAny = pol.AskAny
	var err error
	if pol.Baseline {
		if lists.Allow, err = builtin("allow"); err != nil {
			return nil, err
		}
	}
	allow, err := compileRules(pol.Allow, "policies."+name+".allow")
	if err != nil {
		return nil, err
	}
	lists.Allow = append(lists.Allow, allow...)
	if lists.Ask, err = compileRules(pol.Ask, "policies."+name+".ask"); err != nil {
		return nil, err
	}
	if lists.Deny, err = compileRules(pol.Deny, "policies."+name+".deny"); err != nil {
		return nil, err
	}
	if files {
		if lists.AllowLists, err = readLists(pol.AllowFiles, true); err != nil {
			return nil, fmt.Errorf("compile policy %s: %w", name, err)
		}
		if lists.DenyLists, err = readLists(pol.DenyFiles, false); err != nil {
			return nil, fmt.Errorf("compile policy %s: %w", name, err)
		}
	}
	set, err := policy.Compile(lists, own)
	if err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", name, err)
	}
	if err := refuseDead(set); err != nil {
		return nil, fmt.Errorf("compile policy %s: %w", name, err)
	}
	enforce, err := parseEnforce(pol.Enforce)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", name, err)
	}
	if !enforce {
		set = set.Reporting()
	}
	return set, nil
}

// refuseDead finds rules that can open nothing by themselves: a metadata service,
// localhost without the flag private. One that a deny list closes is no mistake,
// since that is how a host is taken out of an imported list.
func refuseDead(set *policy.Set) error {
	const most = 10
	var errs []error
	for _, d := range set.Dead() {
		if d.Always && len(errs) < most {
			errs = append(errs, errors.New(d.Reason))
		}
	}
	return errors.Join(errs...)
}

// locals returns the canonical names of the hosts that the appliance answers
// itself. An address is nobody's to answer.
func (app *App) locals() ([]string, error) {
	names := make([]string, 0, len(app.LocalHosts))
	for _, text := range app.LocalHosts {
		h, err := policy.ParseHost(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("parse local host: %w", err)
		case h.Name() == "":
			return nil, fmt.Errorf("parse local host %q: want a name, not an address", text)
		case slices.Contains(names, h.Name()):
			return nil, fmt.Errorf("local host %s is given twice", h.Name())
		}
		names = append(names, h.Name())
	}
	return names, nil
}

// parseSNI reads the setting; the empty text is the default.
func parseSNI(text string) (proxy.SNIMode, error) {
	switch text {
	case "", "enforce":
		return proxy.SNIEnforce, nil
	case "log":
		return proxy.SNILog, nil
	case "off":
		return proxy.SNIOff, nil
	}
	return 0, fmt.Errorf("parse sni %q: want enforce, log or off", text)
}

// enforceOff makes a policy report instead of refuse.
const enforceOff = "off"

// parseEnforce reads the setting; the empty text is the default.
func parseEnforce(text string) (bool, error) {
	switch text {
	case "", "on":
		return true, nil
	case enforceOff:
		return false, nil
	}
	return false, fmt.Errorf("parse enforce %q: want on or off", text)
}
