package cas

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestEarlierCells reads cells as earlier builds wrote them, and writes the same. They were written down once, and
// nothing makes them anew: a build that can't read them denies every call of these keys, and one that writes others
// has instances of the earlier build deny them during a rolling upgrade. A new field comes at the end, in a format of
// its own that is written only where the field is needed.
func TestEarlierCells(t *testing.T) {
	p := policy.Policy{Name: "p", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
		{Algorithm: "token-bucket", Limit: 3, Window: time.Minute},
		{Algorithm: "leaky-bucket", Limit: 3, Window: time.Minute},
	}}
	q := policy.Policy{Name: "q", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
		{Algorithm: "conversion", Limit: 3, Window: time.Hour},
	}}
	buckets := []store.Bucket{
		{Limit: "token-bucket-1m/token-bucket/60000", At: fuzzNow, Fill: store.Amount{Hi: 0, Lo: 61000}},
		{Limit: "leaky-bucket-1m/leaky-bucket/60000", At: fuzzNow - 1, Fill: store.Amount{Hi: 1, Lo: 2}},
	}
	conversion := store.Conversion{Limit: "conversion-1h/conversion/3600000", Last: fuzzNow - 2, Probe: true}
	conversion.Blocks[3] = store.ConversionBlock{Start: fuzzNow - 3, Sent: 4, Confirmed: 1}
	applied := store.Applied{Last: []store.Receipt{{ID: store.EventID{7}, At: fuzzNow - 4}}, Since: fuzzNow - 5}
	for name, c := range map[string]struct {
		policy policy.Policy
		state  store.State
		chain  Chain
		want   string
	}{
		"buckets": {
			p, store.State{Reset: fuzzNow - 9, Buckets: buckets}, Chain{newest: fuzzNow - 7, versions: versions{8, 15: 0}, whole: true},
			"0180a8a894956701020900000000000000000000000000000008000000000000000000000000000000eea7a894956702" +
				"22746f6b656e2d6275636b65742d316d2f746f6b656e2d6275636b65742f363030303080a8a894956700c8dc03226c65" +
				"616b792d6275636b65742d316d2f6c65616b792d6275636b65742f3630303030fea7a8949567010200",
		},
		"conversion": {
			q, store.State{Conversions: []store.Conversion{conversion}}, Chain{whole: true},
			"0280a8a89495670101090000000000000000000000000000000000000120636f6e76657273696f6e2d31682f636f6e76" +
				"657273696f6e2f33363030303030fca7a89495670100000001faa7a89495670401000000000000",
		},
		"receipts that came": {
			q, store.State{Conversions: []store.Conversion{conversion}, Applied: applied}, Chain{},
			"0380a8a89495670001090000000000000000000000000000000000000120636f6e76657273696f6e2d31682f636f6e76" +
				"657273696f6e2f33363030303030fca7a89495670100000001faa7a89495670401000000000000f6a7a8949567010700" +
				"0000000000000000000000000000f8a7a8949567",
		},
	} {
		o := demand.Settings{}.WithDefaults()
		plan := demand.NewPlan(c.policy, o, false)
		got := Shut(plan, nil, &c.state, &c.chain, store.EventID{9}, fuzzNow, o).Value
		if hex.EncodeToString(got) != c.want {
			t.Errorf("%s: the cell is\n%x, and of earlier builds it is\n%s", name, got, c.want)
		}
		value, err := hex.DecodeString(c.want)
		if err != nil {
			t.Fatal(err)
		}
		s := store.State{Cell: store.Cell{Version: store.EventID{9}, Value: value}}
		chain, err := Open(plan, &s)
		if err != nil || chain.newest != fuzzNow || chain.versions.At(0) != (store.EventID{9}) || chain.whole != c.chain.whole {
			t.Errorf("%s: the cell of an earlier build has the past %+v, %v", name, chain, err)
		}
		if s.Reset != c.state.Reset || !reflect.DeepEqual(s.Applied, c.state.Applied) ||
			!equal(s.Buckets, c.state.Buckets) || !equal(s.Conversions, c.state.Conversions) {
			t.Errorf("%s: the cell of an earlier build says\n%+v, want\n%+v", name, s, c.state)
		}
	}
}

// equal reports whether two lists say the same.
func equal[T any](a, b []T) bool { return len(a)+len(b) == 0 || reflect.DeepEqual(a, b) }

// TestEarlierCellsOfWindows refuses a cell of a policy with guarantee serial, in which earlier builds kept windows.
func TestEarlierCellsOfWindows(t *testing.T) {
	const text = "0180a8a8949567010209000000000000000000000000000000080000000000000000000000000000000000012466697865642d77696e" +
		"646f772d31682f66697865642d77696e646f772f3336303030303080a8a894956780e2df9795670002"
	value, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 3, Window: time.Minute}}}
	s := store.State{Cell: store.Cell{Version: store.EventID{9}, Value: value}}
	if _, err := Open(demand.NewPlan(p, demand.Settings{}.WithDefaults(), false), &s); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read as %+v, %v", s, err)
	}
}
