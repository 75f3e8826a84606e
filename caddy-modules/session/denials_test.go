package session

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// reports collects what a denials reported.
type reports struct {
	mu  sync.Mutex
	all []map[string]any
}

func (r *reports) add(f map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, f)
}

func (r *reports) take() []map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func (r *reports) text() string {
	s := ""
	for _, f := range r.take() {
		s += fmt.Sprintf("%v/%v×%v ", f["target"], f["code"], f["count"])
	}
	return s
}

func refuse(d *denials, target, code string) {
	d.add(target, code, func() map[string]any { return map[string]any{"target": target, "code": code} })
}

func remembered(d *denials) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

func TestDenialsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got reports
		d := newDenials(got.add)
		defer d.close()
		expect := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if s := got.text(); s != want {
				t.Errorf("%s: reported %q, want %q", when, s, want)
			}
		}
		refuse(d, "a:443", "x")
		expect("the first", "a:443/x×1 ")
		for range 9 {
			refuse(d, "a:443", "x")
		}
		refuse(d, "b:443", "x")
		refuse(d, "a:443", "y")
		expect("repeated within the window", "b:443/x×1 a:443/y×1 ")
		time.Sleep(denialWindow - time.Millisecond)
		expect("just before its end", "")
		time.Sleep(time.Millisecond)
		expect("at its end", "a:443/x×9 ")
		refuse(d, "a:443", "x")
		expect("in the next window", "")
		time.Sleep(denialWindow)
		expect("at the end of that", "a:443/x×1 ")
		time.Sleep(denialWindow)
		expect("quiet", "")
		refuse(d, "a:443", "x")
		expect("after a quiet window", "a:443/x×1 ")
		if n := remembered(d); n != 1 {
			t.Errorf("%d targets are remembered", n)
		}
	})
}

// A session's end reports what its windows still hold, and nothing after it.
func TestDenialsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got reports
		d := newDenials(got.add)
		refuse(d, "a:443", "x")
		refuse(d, "a:443", "x")
		refuse(d, "b:443", "x")
		got.take()
		d.close()
		d.close()
		refuse(d, "c:443", "x")
		time.Sleep(3 * denialWindow)
		if s := got.text(); s != "a:443/x×1 " {
			t.Errorf("reported %q", s)
		}
	})
}

// A run that makes up names costs bounded memory, and none of them is uncounted.
func TestDenialsOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got reports
		d := newDenials(got.add)
		const n = 3 * maxDenials
		for i := range n {
			refuse(d, fmt.Sprintf("h%d:443", i), "x")
		}
		if n := remembered(d); n > maxDenials+1 {
			t.Errorf("%d targets are remembered", n)
		}
		time.Sleep(denialWindow)
		synctest.Wait()
		total, stars := uint64(0), 0
		for _, f := range got.take() {
			total += f["count"].(uint64)
			if f["target"] == overflowTarget {
				stars++
				if f["code"] != "many_targets" || f["reason"] == "" {
					t.Errorf("the overflow says %v", f)
				}
			}
		}
		if total != n || stars != 2 {
			t.Errorf("%d of %d counted, %d reports for the rest", total, n, stars)
		}
		d.close()
	})
}

// The fields of one report are not those of the next: readers keep them.
func TestDenialsDoNotShareFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got reports
		d := newDenials(got.add)
		defer d.close()
		refuse(d, "a:443", "x")
		first := got.take()[0]
		refuse(d, "a:443", "x")
		refuse(d, "a:443", "x")
		time.Sleep(denialWindow)
		synctest.Wait()
		if first["count"] != uint64(1) {
			t.Errorf("the first report has changed to %v", first["count"])
		}
	})
}
