package spec

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

// SPEC 87: every pair of states, and nothing else.
func TestStateMachine(t *testing.T) {
	legal := map[State][]State{
		Created:   {Warm, Destroyed, Failed},
		Warm:      {Active, Suspended, Destroyed, Failed},
		Active:    {Warm, Suspended, Destroyed, Failed},
		Suspended: {Warm, Active, Destroyed, Failed},
		Failed:    {Destroyed},
		Destroyed: {},
	}
	if len(States()) != 6 {
		t.Fatalf("%d states, want 6", len(States()))
	}
	for _, from := range States() {
		for _, to := range States() {
			want := slices.Contains(legal[from], to)
			if got := from.May(to); got != want {
				t.Errorf("%s to %s: %t, want %t", from, to, got, want)
			}
			h := &Handle{State: from}
			if to == Failed {
				h.Fail(errors.New("why"))
				if (h.State == Failed) != (want || from == Failed) || (h.Error != "") != want {
					t.Errorf("%s failed: %+v", from, h)
				}
				continue
			}
			err := h.To(to)
			if (err == nil) != want || (h.State == to) != (want || from == to) {
				t.Errorf("%s to %s: %v, then %s", from, to, err, h.State)
			}
		}
	}
	if State("").May(Created) || Created.May("") || Destroyed.May(Created) {
		t.Error("a way out of nowhere")
	}
	if err := (&Handle{State: Warm}).To(Failed); err == nil {
		t.Error("failed without a reason")
	}
}

func TestHandleOnTheWire(t *testing.T) {
	h := NewHandle("s-1", "native")
	h.Details["cwd"] = "/a"
	c := h.Copy()
	h.Details["pid"] = 7
	h.Fail(errors.New("bwrap is gone"))
	for _, tc := range []struct {
		h    *Handle
		want string
	}{
		{c, `{"sessionId":"s-1","backend":"native","state":"created","details":{"cwd":"/a"}}`},
		{h, `{"sessionId":"s-1","backend":"native","state":"error","error":"bwrap is gone","details":{"cwd":"/a","pid":7}}`},
	} {
		data, err := json.Marshal(tc.h)
		if err != nil || string(data) != tc.want {
			t.Errorf("%s %v, want %s", data, err, tc.want)
		}
	}
}
