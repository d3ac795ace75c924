package overshoot

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestSumOfInstances compares the sum of reports of three instances, sent as JSON, with that of one that saw all attempts.
// Counts and spreads are equal, and bounds of the worst keys hold, also for keys that an instance does not list.
func TestSumOfInstances(t *testing.T) {
	const top = 10
	var all [4]*Tally // the last one sees all
	for i := range all {
		all[i] = NewTally("p", noon)
	}
	random := rand.New(rand.NewPCG(3, 4))
	zipf := rand.NewZipf(random, 1.1, 1, 199)
	attempts, many := make(map[store.Key]int64), keys(200)
	for range 5000 {
		key, n := many[zipf.Uint64()], 1+random.Int64N(20)
		attempts[key] += n
		for _, tally := range []*Tally{all[random.IntN(3)], all[3]} {
			tally.open.Add(1)
			tally.hear(&news{of: tally, key: key, attempts: n, over: &episode{tally: tally, attempts: n, units: 2 * n, limit: 3}}, noon)
		}
	}
	table := New(func(Episode) {}, DefaultMaxKeys)
	reports := make([]Report, len(all))
	for i, tally := range all {
		text, err := json.Marshal(table.Report(tally, top, noon))
		if err != nil || json.Unmarshal(text, &reports[i]) != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	sum, whole := reports[0], reports[3]
	sum.Add(&reports[1], top)
	sum.Add(&reports[2], top)
	if len(sum.Worst) != top {
		t.Errorf("%d keys", len(sum.Worst))
	}
	for _, h := range sum.Worst {
		if n := attempts[h.Key]; n < h.Attempts || n > h.Attempts+h.Error {
			t.Errorf("%v: %d attempts, want %d to %d", h.Key, n, h.Attempts, h.Attempts+h.Error)
		}
		delete(attempts, h.Key)
	}
	for key, n := range attempts {
		if n > sum.Unlisted {
			t.Errorf("%v has %d attempts, no other key more than %d", key, n, sum.Unlisted)
		}
	}
	if sum.Worst[0].Key != whole.Worst[0].Key {
		t.Errorf("the worst is %+v, want %+v", sum.Worst[0], whole.Worst[0])
	}
	sum.Worst, sum.Unlisted, whole.Worst, whole.Unlisted = nil, 0, nil, 0
	if !reflect.DeepEqual(sum, whole) {
		t.Errorf("the sum is\n%+v, want\n%+v", sum, whole)
	}
}

// TestSumOfSpreads holds that values above all bounds are kept, and that no values add nothing.
func TestSumOfSpreads(t *testing.T) {
	far := newSpread(attemptBounds)
	far.add(2_000_000)
	far.add(1)
	shown := far.show()
	if sum := sumOf(&shown, &Spread{}, attemptBounds); !reflect.DeepEqual(sum, shown) {
		t.Errorf("%+v, want %+v", sum, shown)
	}
}
