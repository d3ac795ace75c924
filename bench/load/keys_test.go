package load

import (
	"math"
	"testing"
	"time"
)

const draws = 200_000

// draw returns how often each key came, from a fixed seed and two workers.
func draw(t *testing.T, name string) map[uint64]int {
	t.Helper()
	keys, err := ParseKeys(name)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[uint64]int)
	for worker := range 2 {
		next := keys.of(7, worker, 2)
		for range draws / 2 {
			counts[next()]++
		}
	}
	return counts
}

func TestZipfHasItsShares(t *testing.T) {
	counts := draw(t, "zipf")
	var sum float64
	for key := range shared {
		sum += math.Pow(float64(key+1), -zipfExponent)
	}
	for _, key := range []uint64{0, 1, 9} {
		want := math.Pow(float64(key+1), -zipfExponent) / sum
		if got := float64(counts[key]) / draws; math.Abs(got/want-1) > .1 {
			t.Errorf("key %d has a share of %.4f, want %.4f", key, got, want)
		}
	}
	for key := range counts {
		if key >= shared {
			t.Fatalf("key %d: there are only %d keys", key, shared)
		}
	}
}

func TestUniqueKeysAreUnique(t *testing.T) {
	if counts := draw(t, "unique"); len(counts) != draws {
		t.Errorf("%d different keys among %d", len(counts), draws)
	}
}

func TestHotIsOneKey(t *testing.T) {
	if counts := draw(t, "hot"); len(counts) != 1 {
		t.Errorf("%d keys", len(counts))
	}
}

func TestAttackHasItsShares(t *testing.T) {
	attacks, others := 0, 0
	for key, count := range draw(t, "attack") {
		switch {
		case key < attackers:
			attacks += count
		case key < shared || count > 1:
			t.Fatalf("key %d, which is not an attacker's, came %d times", key, count)
		default:
			others++
		}
	}
	if share := 100 * float64(attacks) / draws; math.Abs(share-attackShare) > .5 {
		t.Errorf("%.2f %% of the calls are attackers', want %d", share, attackShare)
	}
	if attacks+others != draws {
		t.Errorf("%d attacks and %d others are not %d calls", attacks, others, draws)
	}
}

func TestSeedsMakeKeys(t *testing.T) {
	for _, name := range []string{"zipf", "attack"} {
		keys, _ := ParseKeys(name)
		same, other := 0, 0
		first, again, another := keys.of(1, 0, 2), keys.of(1, 0, 2), keys.of(2, 0, 2)
		for range 1000 {
			key := first()
			if key == again() {
				same++
			}
			if key == another() {
				other++
			}
		}
		if same != 1000 || other > 500 {
			t.Errorf("%s: %d of 1000 keys are the same with one seed, %d with another", name, same, other)
		}
	}
}

// A denial is wrong if there were too few earlier calls to use up the limit, even if all calls in flight were allowed.
func TestWrongDenialsAndTooMany(t *testing.T) {
	const limit, primed = 2, 1
	yes, no, broken := Outcome{Allowed: 1}, Outcome{Denied: 1}, Outcome{Failed: 1}
	for _, test := range []struct {
		name        string
		key         uint64
		asked       int // before the first answer
		answers     []Outcome
		elapsed     time.Duration
		wrong, over int64
	}{
		{"as it must be", 5, 4, []Outcome{yes, yes, no, no}, time.Second, 0, 0},
		{"the first is denied", 5, 1, []Outcome{no}, time.Second, 1, 0},
		{"the first is, while others are in flight", 5, 3, []Outcome{no, yes, yes}, time.Second, 0, 0},
		{"of three in flight too many are", 5, 3, []Outcome{no, no, yes}, time.Second, 1, 0},
		{"what failed may have been counted", 5, 3, []Outcome{broken, yes, no}, time.Second, 0, 0},
		{"at its limit before", 0, 2, []Outcome{no, no}, time.Second, 0, 0},
		{"one more", 5, 3, []Outcome{yes, yes, yes}, time.Second, 0, 1},
		{"one more than before", 0, 2, []Outcome{yes, no}, time.Second, 0, 1},
		{"as many as a bucket refills", 5, 3, []Outcome{yes, yes, yes}, 31 * time.Second, 0, 0},
		{"one more than a bucket refills", 5, 4, []Outcome{yes, yes, yes, yes}, 31 * time.Second, 0, 1},
		{"one more in two windows", 5, 5, []Outcome{yes, yes, yes, yes, yes}, 61 * time.Second, 0, 1},
		{"another key", shared, 1, []Outcome{no}, time.Second, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var seen tally
			for range test.asked {
				seen.add([]uint64{test.key})
			}
			for _, answer := range test.answers {
				seen.saw(test.key, answer, primed, limit)
			}
			if wrong, over := seen.wrong.Load(), seen.over(primed, limit, time.Minute, test.elapsed); wrong != test.wrong || over != test.over {
				t.Errorf("%d denied wrongly, %d too many; want %d and %d", wrong, over, test.wrong, test.over)
			}
		})
	}
}

func TestBoundsOfAllowedCalls(t *testing.T) {
	ask := func(key uint64, times int) []uint64 {
		keys := make([]uint64, times)
		for i := range keys {
			keys[i] = key
		}
		return keys
	}
	for _, test := range []struct {
		name      string
		keys      []uint64
		primed    uint64
		elapsed   time.Duration
		low, high int64
	}{
		{"nothing", nil, 0, 0, 0, 0},
		{"below the limit", ask(3, 9), 0, 0, 9, 9},
		{"above", ask(3, 50), 0, 0, 10, 11},
		{"above, for half a window", ask(3, 50), 0, time.Minute / 2, 10, 16},
		{"above, for three windows", ask(3, 50), 0, 3 * time.Minute, 10, 41},
		{"two keys", append(ask(3, 50), ask(4, 4)...), 0, 0, 14, 15},
		{"unique keys", []uint64{shared, shared + 1, shared + 2}, 0, 0, 3, 3},
		{"at its limit before", append(ask(3, 50), ask(4, 4)...), 4, 0, 4, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked tally
			asked.add(test.keys)
			if low, high := asked.bounds(test.primed, 10, time.Minute, test.elapsed); low != test.low || high != test.high {
				t.Errorf("%d to %d, want %d to %d", low, high, test.low, test.high)
			}
		})
	}
}
