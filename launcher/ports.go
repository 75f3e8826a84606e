package main

import (
	"errors"
	"strconv"

	"postern/launcher/ports"
	"postern/launcher/sandbox"
)

// parsePorts reads the ports of the flags and the settings.
func parsePorts(publish, grants []string) (ports.Set, error) {
	set, err := ports.Parse(publish, grants)
	if _, refused := errors.AsType[*sandbox.Refusal](err); refused {
		return set, err
	}
	if err != nil {
		return set, usageError(err)
	}
	if set.Empty() {
		return set, nil
	}
	return set, sandbox.CheckPorts()
}

// ports reads a list of texts in which a port may stand as the number that it is.
func (r *reader) ports(key string) []string {
	switch v := r.get(key).(type) {
	case int:
		return []string{strconv.Itoa(v)}
	case []any:
		out := make([]string, 0, len(v))
		for _, e := range v {
			switch e := e.(type) {
			case int:
				out = append(out, strconv.Itoa(e))
			case string:
				out = append(out, e)
			default:
				r.fail(key, errors.New("want ports"))
			}
		}
		return out
	}
	return r.list(key)
}
