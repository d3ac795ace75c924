package overrides

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
)

// TestPrefixesMatchTheModel adds, replaces and drops prefixes, and compares the longest one that is in force with what a
// look at all of them finds.
func TestPrefixesMatchTheModel(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	text := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("ab"[r.IntN(2)])
		}
		return b.String()
	}
	var p prefixes
	all := make(map[string]*live)
	for range 20_000 {
		prefix := text(6)
		if all[prefix] != nil && r.IntN(2) == 0 {
			p.drop(prefix)
			delete(all, prefix)
		} else {
			all[prefix] = &live{Override: demand.Override{Prefix: prefix, Until: 1}}
			if r.IntN(3) > 0 {
				all[prefix].Until = 3
			}
			p.put(all[prefix])
		}
		id, want := text(9), (*live)(nil)
		for prefix, o := range all {
			if strings.HasPrefix(id, prefix) && o.Until > 2 && (want == nil || len(prefix) > len(want.Prefix)) {
				want = o
			}
		}
		if got := p.longest(id, 2); got != want {
			t.Fatalf("seed %d: %q has %+v, want %+v", seed, id, got, want)
		}
		if len(p.lengths) > 6 || len(p.of) != len(all) {
			t.Fatalf("seed %d: %d lengths of %d prefixes, want %d", seed, len(p.lengths), len(p.of), len(all))
		}
	}
}
