package overshoot

import (
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// past counts attempts of key beyond a limit of 10, each of so many units, in a window
// that ends after a minute.
func past(table *Table, tally *Tally, key store.Key, attempts int, units int64, at time.Time) {
	for range attempts {
		table.Count(Attempt{Tally: tally, Key: key, Units: units, Limit: 10, At: at, Ends: at.Add(time.Minute)})
	}
}

// TestReport holds which callers of two policies went past the limit, and how far.
func TestReport(t *testing.T) {
	table := New(func(Episode) {}, DefaultMaxKeys)
	tally, other := NewTally("p", noon), NewTally("q", noon)
	k := keys(4)
	past(table, tally, k[0], 90, 1, noon)                    // ten times its limit
	past(table, tally, k[1], 1, 5, noon)                     // one and a half
	past(table, tally, k[2], 2, 5, noon.Add(90*time.Second)) // twice, and still over
	past(table, other, k[3], 500, 1, noon)
	got := table.Report(tally, 2, noon.Add(2*time.Minute))
	want := Report{
		Since: noon, Attempts: 93, Units: 105, Episodes: 3, Open: 1,
		PerEpisode: Spread{Count: 3, P50: 2, P90: 90, P99: 90, Max: 90, Buckets: got.PerEpisode.Buckets},
		Times:      Spread{Count: 3, P50: 2, P90: 10, P99: 10, Max: 10, Buckets: got.Times.Buckets},
		WorstSince: noon,
		Worst:      []Heavy{{Key: k[0], Attempts: 90}, {Key: k[2], Attempts: 2}},
		Unlisted:   1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if b := got.Times.Buckets; b[2] != (Bucket{1.5, 1}) || b[3] != (Bucket{2, 2}) || b[len(b)-1] != (Bucket{10, 3}) {
		t.Errorf("%v", b)
	}
	if again := table.Report(tally, 2, noon.Add(2*time.Minute)); !reflect.DeepEqual(again, want) {
		t.Errorf("asked again: %+v", again)
	}
	if r := table.Report(other, 2, noon.Add(2*time.Minute)); r.Attempts != 500 || len(r.Worst) != 1 || r.Worst[0].Key != k[3] {
		t.Errorf("the other policy: %+v", r)
	}
}

// TestReportOfNothing holds that a report without attempts has no values.
func TestReportOfNothing(t *testing.T) {
	got := New(nil, DefaultMaxKeys).Report(NewTally("p", noon), 20, noon.Add(time.Hour))
	if want := (Report{Since: noon, WorstSince: noon.Add(time.Hour - worstHalf)}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestNoMultipleOfALimitOfZero holds that attempts beyond a limit of 0 have no multiple.
func TestNoMultipleOfALimitOfZero(t *testing.T) {
	var ended []Episode
	table := New(func(e Episode) { ended = append(ended, e) }, DefaultMaxKeys)
	tally := NewTally("p", noon)
	table.Count(Attempt{Tally: tally, Key: keys(1)[0], Units: 7, At: noon, Ends: noon.Add(time.Second)})
	if r := table.Report(tally, 1, noon.Add(time.Second)); r.Times.Count != 0 || r.PerEpisode.Count != 1 || r.Units != 7 {
		t.Errorf("%+v", r)
	}
	if len(ended) != 1 || ended[0].Times != 0 {
		t.Errorf("%+v", ended)
	}
}

// TestAnotherTally holds that the episode of a key ends if its policy was removed and came back. Further attempts are in the
// new tally.
func TestAnotherTally(t *testing.T) {
	table := New(func(Episode) {}, DefaultMaxKeys)
	before, after := NewTally("p", noon), NewTally("p", noon.Add(time.Second))
	key := keys(1)[0]
	past(table, before, key, 3, 1, noon)
	past(table, after, key, 2, 1, noon.Add(time.Second))
	was, is := table.Report(before, 1, noon.Add(time.Second)), table.Report(after, 1, noon.Add(time.Second))
	if was.Attempts != 3 || was.Open != 0 || was.Worst[0].Attempts != 3 {
		t.Errorf("before: %+v", was)
	}
	if is.Attempts != 2 || is.Open != 1 || is.Worst[0].Attempts != 2 {
		t.Errorf("after: %+v", is)
	}
}
