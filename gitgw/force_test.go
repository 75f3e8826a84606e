package gitgw

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"postern/gitgw/pack"
)

// packOf makes a pack of commits, and says their ids.
func packOf(t *testing.T, commits ...string) (p *pack.Pack, ids []string) {
	t.Helper()
	out := append([]byte("PACK"), 0, 0, 0, 2)
	out = binary.BigEndian.AppendUint32(out, uint32(len(commits)))
	for _, c := range commits {
		size := len(c)
		b := byte(1<<4 | size&15)
		for size >>= 4; size > 0; size >>= 7 {
			out = append(out, b|0x80)
			b = byte(size & 0x7f)
		}
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, _ = w.Write([]byte(c))
		_ = w.Close()
		out = append(append(out, b), z.Bytes()...)
		sum := sha1.Sum([]byte(fmt.Sprintf("commit %d\x00%s", len(c), c)))
		ids = append(ids, hex.EncodeToString(sum[:]))
	}
	sum := sha1.Sum(out)
	out = append(out, sum[:]...)
	p, err := pack.Open(context.Background(), bytes.NewReader(out), int64(len(out)), pack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p, ids
}

func commitOf(parents ...string) string {
	c := "tree " + strings.Repeat("0", 40) + "\n"
	for _, p := range parents {
		c += "parent " + p + "\n"
	}
	return c + "\n"
}

// A few commits can name millions of others, and none of them is worth remembering.
func TestWalkIsBounded(t *testing.T) {
	t.Parallel()
	many := func(from, n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("%040x", from+i+1))
		}
		return ids
	}
	const each = 4000
	var commits []string
	var last string
	for i := range 4 {
		parents := many(i*each, each)
		if last != "" {
			parents = append(parents, last)
		}
		commits = append(commits, commitOf(parents...))
		_, ids := packOf(t, commits...)
		last = ids[len(ids)-1]
	}
	p, ids := packOf(t, commits...)
	walk := func(id string) ([]pack.ID, error) {
		start, _ := pack.ParseID(id)
		edge, _, err := (&inspection{pack: p}).walk(start, pack.ID{})
		return edge, err
	}
	if edge, err := walk(ids[1]); err != nil || len(edge) != 2*each {
		t.Errorf("%d commits outside, %v", len(edge), err)
	}
	if edge, err := walk(ids[3]); err == nil || !strings.Contains(err.Error(), "outside the pack") {
		t.Errorf("%d commits outside, %v", len(edge), err)
	}
}

// Whether an update is forced has to be known where somebody is asked about it, and
// where another rule would decide, wherever that one was written.
func TestNeedsForced(t *testing.T) {
	t.Parallel()
	app, _ := ParseRepo("github.com/acme/app")
	u := Update{Ref: "refs/heads/main", Action: ActionUpdate}
	for _, c := range []struct {
		rules []string
		small bool // the last rule has a limit
		want  bool
	}{
		{[]string{"push main create update force"}, false, false},
		{[]string{"push main"}, false, true},
		{[]string{"ask main"}, false, true},
		{[]string{"ask main create update force"}, false, true},
		{[]string{"push main", "push main force"}, false, true},
		{[]string{"push main", "push main force"}, true, true},
		{[]string{"deny main force", "push main"}, false, true},
		{[]string{"deny main"}, false, false},
	} {
		b := block(t, "github.com/acme/app", c.rules...)
		for i := range b.Rules {
			b.Rules[i].Source = "" // as of a configuration in JSON
		}
		if c.small {
			b.Rules[len(b.Rules)-1].Conditions.MaxPack = 1
		}
		r, err := NewRules(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Decide(app, u).NeedsForced; got != c.want {
			t.Errorf("%q: %v", c.rules, got)
		}
	}
}
