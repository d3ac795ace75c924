package limiter_test

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// bucketStep is a request to a bucket and what the answer must be.
type bucketStep struct {
	after     time.Duration
	op        count.Op
	cost      int64
	allowed   bool
	remaining int64
	retry     time.Duration
}

func TestBuckets(t *testing.T) {
	const take, record = count.OpTake, count.OpRecord
	for _, test := range []struct {
		name  string
		limit policy.Limit
		steps []bucketStep
	}{
		{
			"a burst above the limit is there at once, and comes back at the limit's rate",
			policy.Limit{Algorithm: "token-bucket", Limit: 3, Window: time.Minute, Burst: 6},
			[]bucketStep{
				{0, take, 6, true, 0, 0},
				{0, take, 1, false, 0, 20 * time.Second},
				{20*time.Second - time.Millisecond, take, 1, false, 0, time.Millisecond},
				{20 * time.Second, take, 1, true, 0, 0},
				{time.Minute, take, 6, false, 2, 80 * time.Second},
				{140 * time.Second, take, 6, true, 0, 0},
			},
		},
		{
			"a burst below the limit spreads it",
			policy.Limit{Algorithm: "token-bucket", Limit: 60, Window: time.Minute, Burst: 2},
			[]bucketStep{
				{0, take, 1, true, 1, 0},
				{0, take, 1, true, 0, 0},
				{0, take, 1, false, 0, time.Second},
				{time.Second, take, 1, true, 0, 0},
				{time.Hour, take, 3, false, 2, count.Never},
				{time.Hour, take, 2, true, 0, 0},
			},
		},
		{
			"what is recorded past the limit is paid back first",
			policy.Limit{Algorithm: "leaky-bucket", Limit: 3, Window: time.Minute},
			[]bucketStep{
				{0, record, 9, true, 0, 0},
				{0, take, 1, false, 0, 140 * time.Second},
				{140*time.Second - time.Millisecond, take, 1, false, 0, time.Millisecond},
				{140 * time.Second, take, 1, true, 0, 0},
			},
		},
		{
			"a limit of 0 denies always, and a record stays",
			policy.Limit{Algorithm: "leaky-bucket", Limit: 0, Window: time.Minute},
			[]bucketStep{
				{0, take, 1, false, 0, count.Never},
				{0, record, 1, true, 0, 0},
				{24 * time.Hour, take, 1, false, 0, count.Never},
			},
		},
		{
			"a clock that steps back finds what was there last, and waits for it",
			policy.Limit{Algorithm: "token-bucket", Limit: 3, Window: time.Minute},
			[]bucketStep{
				{time.Minute, take, 3, true, 0, 0},
				{0, take, 1, false, 0, 80 * time.Second},
				{70 * time.Second, take, 1, false, 0, 10 * time.Second},
				{80 * time.Second, take, 1, true, 0, 0},
			},
		},
		{
			"what a clock that stepped back records is not forgotten sooner",
			policy.Limit{Algorithm: "leaky-bucket", Limit: 3, Window: time.Minute},
			[]bucketStep{
				{time.Minute, take, 1, true, 2, 0},
				{0, take, 2, true, 0, 0},
				{time.Minute, take, 1, false, 0, 20 * time.Second},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{test.limit}})
			for _, step := range test.steps {
				got := m.Do(step.op, someMorning.Add(step.after), step.cost)
				if got.Allowed != step.allowed || got.Remaining != step.remaining || got.RetryAfter != step.retry {
					t.Errorf("%s of %d after %v: allowed %v, remaining %d, retry after %v, want %v, %d, %v", step.op, step.cost,
						step.after, got.Allowed, got.Remaining, got.RetryAfter, step.allowed, step.remaining, step.retry)
				}
			}
		})
	}
}

// TestNoBucketAdmitsMoreThanItsRate checks that the units that pass in any time are at most the burst and those that
// drain meanwhile, whatever the clock does.
func TestNoBucketAdmitsMoreThanItsRate(t *testing.T) {
	for _, name := range []string{"leaky-bucket", "token-bucket"} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			l := drawLimit(t, name)
			l.Limit = max(1, l.Limit)
			m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}})
			var admitted []event
			now, latest := someMorning, store.Instant(0) // latest: of what was admitted
			for range rapid.IntRange(1, 60).Draw(t, "requests") {
				now += store.Instant(rapid.Int64Range(-900, 1500).Draw(t, "later by ms"))
				cost := rapid.Int64Range(1, 5).Draw(t, "cost")
				if m.Do(count.OpTake, now, cost).Allowed {
					latest = max(latest, now)
					admitted = append(admitted, event{at: latest, cost: cost})
				}
			}
			for i, first := range admitted {
				total := new(big.Rat)
				for _, e := range admitted[i:] {
					total.Add(total, big.NewRat(e.cost, 1))
					most := big.NewRat(int64(e.at-first.at)*l.Limit, int64(millis(l.Window)))
					if most.Add(most, big.NewRat(l.Capacity(), 1)); total.Cmp(most) > 0 {
						t.Fatalf("%v passed within %d ms, and %v may", total, e.at-first.at, most)
					}
				}
			}
		}))
	}
}

// TestBucketsMatchTheModelAtEveryScale draws what a bucket may be asked at most, where
// a product of a limit and a window does not fit 64 bits.
func TestBucketsMatchTheModelAtEveryScale(t *testing.T) {
	for _, name := range []string{"leaky-bucket", "token-bucket"} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			l := policy.Limit{Algorithm: name, Limit: drawScale(t, "limit", policy.MaxLimit)}
			longer := drawScale(t, "window", (policy.MaxWindow - policy.MinWindow).Milliseconds())
			l.Window = policy.MinWindow + time.Duration(longer)*time.Millisecond
			if name == "token-bucket" {
				l.Burst = drawScale(t, "burst", policy.MaxLimit)
			}
			m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}})
			var events []event
			now := someMorning
			for range rapid.IntRange(1, 20).Draw(t, "requests") {
				now += store.Instant(drawScale(t, "later by ms", 2*policy.MaxWindow.Milliseconds()))
				cost := drawScale(t, "cost", policy.MaxCost)
				events = append(events, event{at: now, cost: cost})
				m.Do(count.OpRecord, now, cost)
				used := rounded(l, drained(l, events, now))
				if got := m.Do(count.OpCheck, now, 1); got.Used != used || got.Allowed != (used < l.Capacity()) {
					t.Fatalf("used %d, and another allowed %v, want %d of %d", got.Used, got.Allowed, used, l.Capacity())
				}
			}
		}))
	}
}

// drawScale draws a number from 1 to most, of any length.
func drawScale(t *rapid.T, label string, most int64) int64 {
	digits := rapid.Int64Range(1, most).Draw(t, label+" up to")
	return rapid.SampledFrom([]int64{1, most, digits, 1 + digits%1000, 1 + digits%1_000_000, 1 + digits%1_000_000_000}).Draw(t, label)
}

func TestFullestBucketAdmitsNothing(t *testing.T) {
	for _, name := range []string{"leaky-bucket", "token-bucket"} {
		l := policy.Limit{Algorithm: name, Limit: policy.MaxLimit, Window: policy.MaxWindow}
		m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}})
		m.Fill(someMorning)
		m.Do(count.OpRecord, someMorning, policy.MaxCost) // would be little if the sum began anew
		for _, years := range []store.Instant{0, 1, 10} {
			got := m.Do(count.OpTake, someMorning+years*365*24*3600*1000, 1)
			if got.Allowed || got.Used != math.MaxInt64 || got.Remaining != 0 || got.RetryAfter < 365*24*time.Hour {
				t.Errorf("%s, %d years later: %+v", name, years, got.Verdict)
			}
		}
	}
}

func TestAmountsAreExactOrTheLargest(t *testing.T) {
	largest := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
	bounded := func(n *big.Int) *big.Int {
		switch {
		case n.Sign() < 0:
			return new(big.Int)
		case n.Cmp(largest) > 0:
			return largest
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (store.Amount, *big.Int) {
			a := store.AmountOf(rapid.Int64Range(0, math.MaxInt64).Draw(t, label), rapid.Int64Range(0, math.MaxInt64).Draw(t, label))
			for range rapid.IntRange(0, 3).Draw(t, label+" doubled") {
				a = a.Plus(a)
			}
			return a, intOf(a)
		}
		a, wideA := draw("a")
		b, wideB := draw("b")
		if sum := bounded(new(big.Int).Add(wideA, wideB)); intOf(a.Plus(b)).Cmp(sum) != 0 {
			t.Fatalf("%v + %v = %v, want %v", wideA, wideB, intOf(a.Plus(b)), sum)
		}
		if difference := bounded(new(big.Int).Sub(wideA, wideB)); intOf(a.Minus(b)).Cmp(difference) != 0 {
			t.Fatalf("%v − %v = %v, want %v", wideA, wideB, intOf(a.Minus(b)), difference)
		}
		parts := drawScale(t, "parts", math.MaxInt64)
		quotient := new(big.Int).Div(new(big.Int).Add(wideA, big.NewInt(parts-1)), big.NewInt(parts))
		want := int64(math.MaxInt64)
		if quotient.IsInt64() {
			want = quotient.Int64()
		}
		if got := a.Over(parts); got != want {
			t.Fatalf("%v / %d = %d, want %d", wideA, parts, got, want)
		}
	})
	if got := store.AmountOf(1, 1).Over(0); got != math.MaxInt64 {
		t.Errorf("1 / 0 = %d", got)
	}
	if got := store.AmountOf(math.MaxInt64, 2).Plus(store.AmountOf(1, 1)).Over(2); got != math.MaxInt64 {
		t.Errorf("half more than the largest int64 is rounded up to %d", got)
	}
}

func intOf(a store.Amount) *big.Int {
	hi, lo := a.Hi, a.Lo
	n := new(big.Int).SetUint64(hi)
	return n.Add(n.Lsh(n, 64), new(big.Int).SetUint64(lo))
}

func TestBucketsAndCountAllAreRefused(t *testing.T) {
	for _, name := range policy.Algorithms() {
		if name == policy.Concurrent.Name { // it has a sentence of its own
			continue
		}
		l := policy.Limit{Algorithm: name, Limit: 1, Window: time.Minute}
		beside := l
		beside.Name = "beside"
		p := policy.Policy{Name: "p", Count: policy.CountAll, Limits: []policy.Limit{beside, l}}
		found := p.Problems()
		refused := len(found) == 1 && found[0].Path == "count" && strings.Contains(found[0].Message, "limits[0], a "+name+": use \"admitted\"")
		if refused != l.InCell() || !refused && len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestCellsBesideOthersAreRefused with a sentence on what to do instead.
func TestCellsBesideOthersAreRefused(t *testing.T) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		for _, name := range []string{"leaky-bucket", "token-bucket", "conversion"} {
			p := policyOf("sliding-log", 3, time.Hour)
			p.Guarantee = guarantee
			p.Limits = append(p.Limits, limitOf(name, 3))
			found := p.Problems()
			want := "a " + name + " can't stand beside limits[0], a sliding-log: put the " + name + " into a policy of its own"
			if len(found) != 1 || found[0].Path != "limits[1].algorithm" || !strings.HasPrefix(found[0].Message, want) {
				t.Errorf("%v, want %q", found, want)
			}
		}
	}
}

func TestBursts(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit policy.Limit
		want  string // within the only problem; empty: none
	}{
		{"the limit, unless given", policy.Limit{Algorithm: "token-bucket", Limit: 5}, ""},
		{"above the limit", policy.Limit{Algorithm: "token-bucket", Limit: 5, Burst: policy.MaxLimit}, ""},
		{"below the limit", policy.Limit{Algorithm: "token-bucket", Limit: 5, Burst: 1}, ""},
		{"too large", policy.Limit{Algorithm: "token-bucket", Limit: 5, Burst: policy.MaxLimit + 1}, "burst: 1000000000000001 is out of range"},
		{"negative", policy.Limit{Algorithm: "token-bucket", Limit: 5, Burst: -1}, "limits[0].burst: -1 is out of range"},
		{"of a limit that is wrong itself", policy.Limit{Algorithm: "token-bucket", Limit: -1}, "limits[0].limit: -1 is out of range"},
		{"of a limit of 0", policy.Limit{Algorithm: "token-bucket", Burst: 5}, "limits[0].burst: a limit of 0 denies always: remove the burst"},
		{"below what a millisecond refills", policy.Limit{Algorithm: "token-bucket", Limit: 120_000, Burst: 1},
			"limits[0].burst: a burst of 1 loses tokens of 120000 in 1m: time counts in whole milliseconds, " +
				"and the tokens of a millisecond must fit: use a burst of at least 2"},
		{"as much as a millisecond refills", policy.Limit{Algorithm: "token-bucket", Limit: 120_000, Burst: 2}, ""},
		{"of the largest limit", policy.Limit{Algorithm: "token-bucket", Limit: policy.MaxLimit, Burst: 1},
			"use a burst of at least 16666666668"},
		{"of the largest limit, unless given", policy.Limit{Algorithm: "token-bucket", Limit: policy.MaxLimit}, ""},
		{"of a leaky bucket", policy.Limit{Algorithm: "leaky-bucket", Limit: 5, Burst: 5}, "limits[0].burst: only a token-bucket has a burst"},
	} {
		test.limit.Window = time.Minute
		found := policy.Policy{Name: "p", Limits: []policy.Limit{test.limit}}.Problems()
		if ok := len(found) == 0; test.want == "" != ok || !ok && (len(found) != 1 || !strings.Contains(found[0].Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, found, test.want)
		}
	}
	if l := (policy.Limit{Algorithm: "token-bucket", Limit: 5}).WithDefaults(); l.Burst != 5 || l.Capacity() != 5 {
		t.Errorf("a bucket of 5 holds %d", l.Burst)
	}
}

// passes returns how many takes a bucket allows in a window, of callers that never stop asking.
func passes(l policy.Limit) (n int64) {
	m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}})
	const windows = 20
	for ms := range windows * l.Window.Milliseconds() {
		for m.Do(count.OpTake, someMorning+store.Instant(ms), 1).Allowed {
			n++
		}
	}
	return n / windows
}

// TestSmallestBurst has a bucket that is refilled faster than time counts pass its limit, or be
// refused. A bucket that is refilled slowly loses less than a tenth.
func TestSmallestBurst(t *testing.T) {
	limits := []int64{2000, 999, 1000, 1001, 500, 200, 300, 667, 1500, 1667, 3000, 3001, 12345, 1, 7, 60, 90, 99, 100, 101, 111}
	if race.Enabled {
		limits = limits[:2]
	}
	for _, limit := range limits {
		refused := true
		for burst := int64(1); refused; burst++ {
			l := policy.Limit{Algorithm: "token-bucket", Limit: limit, Window: time.Second, Burst: burst}
			found := policy.Policy{Name: "p", Limits: []policy.Limit{l}}.Problems()
			refused = len(found) > 0
			want := limit
			if !refused && limit <= 100 {
				want = (limit*9 + 9) / 10
			}
			if got := passes(l); got < want != refused {
				t.Errorf("%d in 1s with a burst of %d: %d pass, %v", limit, burst, got, found)
			}
			if refused && burst == 1 && limit <= 1000 && !strings.Contains(found[0].Message, "use a burst of at least 2") {
				t.Errorf("%d in 1s: %v, want 2", limit, found)
			}
		}
	}
}

// TestCooldown has a limit of one as the shortest time between two, beside another.
func TestCooldown(t *testing.T) {
	p := policy.Policy{Name: "sms-send", Limits: []policy.Limit{
		{Name: "cooldown", Algorithm: "sliding-log", Limit: 1, Window: time.Minute},
		{Name: "per-hour", Algorithm: "sliding-log", Limit: 10, Window: time.Hour},
	}}
	m := limiter.NewMachine(p)
	for i := range time.Duration(10) {
		if got := m.Do(count.OpTake, someMorning.Add(i*time.Minute), 1); !got.Allowed || got.Used != 1 || got.Limits()[1].Used != int64(i+1) {
			t.Errorf("in minute %d: %+v", i, got.Verdict)
		}
		got := m.Do(count.OpTake, someMorning.Add(i*time.Minute+59999*time.Millisecond), 1)
		if got.Allowed || got.TightestLimit().Name != "cooldown" && i < 9 || got.Limits()[1].Used != int64(i+1) {
			t.Errorf("1 ms before minute %d is over: by %s %+v", i, got.TightestLimit().Name, got.Verdict)
		}
	}
	got := m.Do(count.OpTake, someMorning.Add(10*time.Minute), 1)
	if got.Allowed || got.TightestLimit().Name != "per-hour" || got.RetryAfter != 50*time.Minute {
		t.Errorf("an eleventh within the hour: by %s %+v", got.TightestLimit().Name, got.Verdict)
	}
}
