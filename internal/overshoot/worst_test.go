package overshoot

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestWorstOfAZipfStream holds that the worst of 10,000 keys, whose attempts fall as 1/rank, are found across two halves, and
// that the bounds of each hold.
func TestWorstOfAZipfStream(t *testing.T) {
	const attempts = 100_000
	many, counts := keys(10_000), make(map[store.Key]int64)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(many)-1))
	w := worst{began: noon}
	for i := range attempts {
		key := many[zipf.Uint64()]
		counts[key]++
		w.add(key, 1, noon.Add(time.Duration(i)*time.Hour/attempts))
	}
	got, _, since := w.top(20, noon.Add(time.Hour-1))
	if len(got) != 20 || !since.Equal(noon) {
		t.Fatalf("%d keys since %v", len(got), since)
	}
	for i, h := range got {
		if n := counts[h.Key]; n < h.Attempts || n > h.Attempts+h.Error {
			t.Errorf("%d attempts of %v, want %d to %d", n, h.Key, h.Attempts, h.Attempts+h.Error)
		}
		if i < 5 && h.Key != many[i] {
			t.Errorf("number %d is %v", i+1, h.Key)
		}
		if h.Error > attempts*35/10_000 {
			t.Errorf("%d attempts too many or too few", h.Error)
		}
	}
	for _, half := range []*sketch{w.current, w.last} {
		if n := half.GetNumActiveItems(); n > sketchSize*3/4 {
			t.Errorf("a sketch holds %d keys", n)
		}
	}
}

// TestNobodyIsWorseThanOthers holds that no key among many with one attempt each has more, and that the bounds include missed
// attempts.
func TestNobodyIsWorseThanOthers(t *testing.T) {
	w := worst{began: noon}
	for _, key := range keys(5000) {
		w.add(key, 1, noon)
	}
	all, _, _ := w.top(5000, noon)
	if len(all) > sketchSize {
		t.Errorf("%d keys", len(all))
	}
	for _, h := range all {
		if h.Attempts > 1 || h.Attempts+h.Error < 1 {
			t.Errorf("%+v", h)
		}
	}
}

// TestWorstForgets holds that a caller that stopped is forgotten within an hour, and at once if a worse one goes on.
func TestWorstForgets(t *testing.T) {
	k := keys(2)
	w := worst{began: noon}
	w.add(k[0], 1000, noon)
	w.add(k[1], 3, noon.Add(worstHalf))
	for _, s := range []struct {
		at    time.Duration
		worst []store.Key
	}{
		{worstHalf, []store.Key{k[0], k[1]}},
		{2*worstHalf - 1, []store.Key{k[0], k[1]}},
		{2 * worstHalf, []store.Key{k[1]}},
		{3*worstHalf - 1, []store.Key{k[1]}},
		{3 * worstHalf, nil},
	} {
		got, _, since := w.top(20, noon.Add(s.at))
		if want := noon.Add(s.at.Truncate(worstHalf) - worstHalf); !since.Equal(want) {
			t.Errorf("%v: since %v, want %v", s.at, since, want)
		}
		if len(got) != len(s.worst) {
			t.Errorf("%v: %v, want %v", s.at, got, s.worst)
			continue
		}
		for i := range got {
			if got[i].Key != s.worst[i] {
				t.Errorf("%v: number %d is %v", s.at, i+1, got[i])
			}
		}
	}
}

// TestWorstAfterALongSilence holds that both halves are forgotten at once.
func TestWorstAfterALongSilence(t *testing.T) {
	k := keys(2)
	w := worst{began: noon}
	w.add(k[0], 1000, noon)
	w.add(k[1], 1, noon.Add(30*24*time.Hour))
	if got, _, _ := w.top(20, noon.Add(30*24*time.Hour)); len(got) != 1 || got[0].Key != k[1] {
		t.Errorf("%v", got)
	}
}

// TestALongEpisodeIsForgotten holds that attempts of hours ago do not count, even if their window has not ended.
func TestALongEpisodeIsForgotten(t *testing.T) {
	table, tally := New(func(Episode) {}, DefaultMaxKeys), NewTally("p", noon)
	k := keys(2)
	for i, at := range []time.Time{noon, noon.Add(2 * time.Hour)} {
		for range 100 - 90*i {
			table.Count(Attempt{Tally: tally, Key: k[i], Units: 1, Limit: 1, At: at, Ends: noon.Add(24 * time.Hour)})
		}
		table.Flush(at)
	}
	r := table.Report(tally, 20, noon.Add(2*time.Hour))
	if r.Attempts != 110 || r.Open != 2 || len(r.Worst) != 1 || r.Worst[0] != (Heavy{Key: k[1], Attempts: 10}) {
		t.Errorf("%+v", r)
	}
}
