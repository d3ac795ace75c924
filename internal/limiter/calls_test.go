package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// twoPolicies returns a policy called p of these limits and one called q.
func twoPolicies(p, q policy.Limit) []policy.Policy {
	return []policy.Policy{
		{Name: "p", Counting: policy.CountingCounters, Limits: []policy.Limit{p}},
		{Name: "q", Counting: policy.CountingCounters, Limits: []policy.Limit{q}},
	}
}

func limitOf(algorithm string, n int64) policy.Limit {
	return policy.Limit{Algorithm: algorithm, Limit: n, Window: time.Hour}
}

var both = []limiter.Demand{{Policy: "p", Identifier: "a"}, {Policy: "q", Identifier: "b"}}

func usedBy(t testing.TB, e *limiter.Engine, d limiter.Demand) int64 {
	t.Helper()
	got, err := e.Check(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return got.Used
}

func mustDo(t testing.TB, e *limiter.Engine, call limiter.Call) limiter.Answer {
	t.Helper()
	answer, err := e.Do(t.Context(), &call)
	if err != nil {
		t.Fatalf("%s: %v", call.Op, err)
	}
	return answer
}

// Calls that name the same keys in different orders neither wait for each other for
// ever nor keep each other from the last unit.
func TestDemandsInAnyOrder(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		store.readTakes, store.writeTakes = 5*time.Millisecond, 5*time.Millisecond
		e := newEngine(t, store, 0, twoPolicies(limitOf("sliding-log", 10), limitOf("fixed-window", 10))...)
		running(t, e)
		reversed := []limiter.Demand{both[1], both[0]}
		var mu sync.Mutex
		allowed := 0
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				demands := both
				if i%2 == 0 {
					demands = reversed
				}
				answer, err := e.Do(context.Background(), &limiter.Call{Op: count.OpTake, Demands: demands})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if answer.Allowed {
					allowed++
				}
			})
		}
		all.Wait()
		if allowed != 10 {
			t.Errorf("%d of 12 calls passed, want 10", allowed)
		}
	})
}

// serialStore is a store whose conditional writes lose answers as a test wants it.
type serialStore struct {
	*fakeStore
	delay func(w *store.Write) (store time.Duration, answer error)
	all   sync.WaitGroup
}

// Write stores at once, or says one thing and does it later.
func (s *serialStore) Write(ctx context.Context, w *store.Write) error {
	if w.Cell == nil || s.delay == nil {
		return s.fakeStore.Write(ctx, w)
	}
	after, answer := s.delay(w)
	if answer == nil {
		return s.fakeStore.Write(ctx, w)
	}
	if after >= 0 {
		kept := *w
		s.all.Go(func() {
			time.Sleep(after)
			_ = s.fakeStore.Write(context.Background(), &kept)
		})
	}
	return answer
}

func (s *serialStore) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s *serialStore) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

var errLost = errors.Join(store.ErrUnavailable, errors.New("no answer"))

// An attempt without an answer may be stored later, like that of a coordinator that is
// paused: it counts once or never, and admitted units stay within the limit.
func TestSerialFencesUnknownOutcomes(t *testing.T) {
	for _, algorithm := range []string{"leaky-bucket", "token-bucket"} {
		delays := map[string]time.Duration{
			"lost": -1, "stored at once": 0, "stored after the next attempt": 30 * time.Millisecond, "stored much later": 5 * time.Second,
		}
		for ms := range 20 { // before the next attempt, and after it was looked for
			after := time.Duration(ms+1) * time.Millisecond
			delays["stored "+after.String()+" later"] = after
		}
		for name, after := range delays {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				s := &serialStore{fakeStore: newFakeStore()}
				s.readTakes, s.writeTakes = 5*time.Millisecond, 5*time.Millisecond
				n := 0
				s.delay = func(*store.Write) (time.Duration, error) {
					if n++; n%3 == 1 {
						return after, errLost
					}
					return 0, nil
				}
				p := policyOf(algorithm, 3, 24*time.Hour)
				e, other := newEngine(t, s, 0, p), newEngine(t, s, 0, p)
				allowed := 0
				for range 4 {
					for _, e := range []*limiter.Engine{e, other} {
						d, err := e.Take(t.Context(), somebody)
						if err != nil {
							t.Fatalf("the outcome stayed open: %v", err)
						}
						if d.Allowed {
							allowed++
						}
					}
				}
				time.Sleep(10 * time.Second)
				s.all.Wait()
				if got := usedBy(t, e, somebody); allowed != 3 || got != 3 {
					t.Errorf("%d admitted and %d used of 3", allowed, got)
				}
			})
		}
	}
}

// An attempt that was lost while somebody else came first is dead, and decided anew.
func TestSerialAttemptThatIsDead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := &serialStore{fakeStore: newFakeStore()}
		p := policyOf("token-bucket", 2, time.Hour)
		e, other := newEngine(t, s, 0, p), newEngine(t, s, 0, p)
		s.delay = func(*store.Write) (time.Duration, error) {
			s.delay = nil
			mustTake(t, other)
			return time.Second, errLost
		}
		if d := mustTake(t, e); !d.Allowed || d.Used != 2 {
			t.Errorf("after another's take: %+v", d.Verdict)
		}
		time.Sleep(2 * time.Second)
		s.all.Wait()
		if got := usedBy(t, e, somebody); got != 2 {
			t.Errorf("used %d, want 2", got)
		}
	})
}

// A clock that is behind does not date anything before what is there.
func TestSerialInstantsNeverGoBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		p := policyOf("token-bucket", 3, time.Hour)
		ahead, behind := newEngine(t, store, tolerance, p), newEngine(t, store, -tolerance, p)
		first, second := mustTake(t, ahead).Entry.At, mustTake(t, behind).Entry.At
		if second < first {
			t.Errorf("dated %d ms before what was there", first-second)
		}
	})
}

// A refund of counters that is as young as the take waits until no read under way can
// miss the addition and see the subtraction.
func TestYoungRefundOfCountersWaits(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		policy := policyOf("fixed-window", 3, 24*time.Hour)
		e := newEngine(t, s, 0, policy)
		running(t, e)
		answer := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		var subtracted atomic.Int64
		refunded := time.Now()
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Add) > 0 && w.Add[0].Units < 0 {
					subtracted.Store(int64(time.Since(refunded)))
				}
				return nil
			}
		})
		if err := e.Refund(t.Context(), answer.Receipt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * timeout)
		if after := time.Duration(subtracted.Load()); after < timeout {
			t.Errorf("subtracted after %v, a store timeout is %v", after, timeout)
		}
		if got := usedBy(t, e, somebody); got != 0 {
			t.Errorf("used %d after the refund", got)
		}
	})
}

// Where nothing answers any more, the outcome is unknown and is said to be.
func TestSerialSaysThatAnOutcomeIsUnknown(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := &serialStore{fakeStore: newFakeStore()}
		s.delay = func(*store.Write) (time.Duration, error) {
			time.Sleep(10 * time.Millisecond)
			return -1, errLost
		}
		e := newEngine(t, s, 0, policyOf("token-bucket", 3, time.Hour))
		start := time.Now()
		_, err := e.Take(t.Context(), somebody)
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("no attempt was ever answered: %v", err)
		}
		if took := time.Since(start); took > timeout+tolerance {
			t.Errorf("it took %v", took)
		}
	})
}

// A claim whose owner died before it answered is taken over on logs: its units are removed,
// and the call decided anew. Of counters, nobody can tell what they hold: at most once.
func TestClaimOfTheDead(t *testing.T) {
	for algorithm, removable := range map[string]bool{"sliding-log": true, "fixed-window": false, "token-bucket": false} {
		bubble(t, algorithm, func(t *testing.T) {
			s := &serialStore{fakeStore: newFakeStore()}
			policy := policyOf(algorithm, 5, time.Hour)
			dying, living := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
			mustDo(t, dying, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}) // the secret is made
			answers := 0
			s.delay = func(w *store.Write) (time.Duration, error) {
				if len(w.Cell.Value) > 0 && w.Cell.Value[0] == '{' { // a claim: the first is made, the answer is not
					if answers++; answers > 1 {
						time.Sleep(timeout)
						return -1, errLost
					}
				}
				return 0, nil
			}
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
			_, _ = dying.Do(t.Context(), &call)
			s.delay = nil
			_, err := living.Do(t.Context(), &call)
			var failed *count.StoreError
			if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
				t.Errorf("while the owner may live: %v", err)
			}
			time.Sleep(5 * time.Second)
			answer, err := living.Do(t.Context(), &call)
			if removable && (err != nil || !answer.Allowed || answer.Replayed) {
				t.Errorf("after the owner's death: %+v, %v", answer.Decision, err)
			}
			if !removable && !errors.As(err, &failed) {
				t.Errorf("after the owner's death: %+v, %v", answer.Decision, err)
			}
			if got := usedBy(t, living, somebody); got != 2 {
				t.Errorf("used %d of one take and one call with a key, want 2", got)
			}
		})
	}
}

// An owner that was only slow finds that its claim was taken over, and that what it counted is
// gone: it gives the answer of the claim's present owner.
func TestClaimThatWasTakenOver(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		in := newFakeStore()
		policy := policyOf("sliding-log", 1, time.Hour)
		slow, other := newEngine(t, in, 0, policy), newEngine(t, in, 10*time.Second, policy)
		slept := false
		in.set(func() {
			in.afterRead = func(s *store.State) error {
				if len(s.Logs) > 0 && len(s.Logs[0].Events) == 1 && !slept {
					slept = true // between counting and answering, another instance takes over
					call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
					if answer, err := other.Do(context.Background(), &call); err != nil || !answer.Allowed {
						t.Errorf("who took over: %+v, %v", answer.Decision, err)
					}
				}
				return nil
			}
		})
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
		answer, err := slow.Do(t.Context(), &call)
		if err != nil || !answer.Allowed || !answer.Replayed {
			t.Errorf("who was taken over: replayed %v, %+v, %v", answer.Replayed, answer.Decision, err)
		}
		if got := usedBy(t, other, somebody); got != 1 {
			t.Errorf("used %d", got)
		}
	})
}

// Reservations in counters and buckets are given back by the process that made them,
// unless they were settled anywhere.
func TestReservationsOfCountersEnd(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		for _, store := range []store.Store{embedded.New(nil), newFakeStore()} {
			bubble(t, algorithm, func(t *testing.T) {
				policy := policyOf(algorithm, 4, 24*time.Hour)
				e, other := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
				running(t, e)
				check := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second}
				kept, left, late := mustDo(t, e, check), mustDo(t, e, check), mustDo(t, e, check)
				if kept.Reservation == left.Reservation || usedBy(t, e, somebody) != 3 {
					t.Fatalf("used %d by three reservations", usedBy(t, e, somebody))
				}
				record := limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: kept.Reservation}
				mustDo(t, other, record)
				time.Sleep(10 * time.Second)
				if got := usedBy(t, e, somebody); got != 1 {
					t.Errorf("used %d when one was settled and two are over", got)
				}
				mustDo(t, other, record)
				record.Reservation = late.Reservation
				mustDo(t, other, record)
				mustDo(t, other, record)
				if got := usedBy(t, e, somebody); got != 2 {
					t.Errorf("used %d when one that was over was recorded twice, want 2", got)
				}
			})
		}
	}
}

// Two instances change the hash key at different times: whatever the order of their
// keys, no more than the limit passes.
func TestHashKeysOutOfStep(t *testing.T) {
	was := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
	will := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
	phases := [][2][]keys.Keyer{
		{{was}, {was, will}}, {{was, will}, {was, will}}, {{was, will}, {will, was}}, {{will, was}, {will, was}}, {{will, was}, {will}},
	}
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail"} {
		for name, store := range map[string]store.Store{"shared": newFakeStore(), "still": embedded.New(nil)} {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				policy := policyOf(algorithm, 5, 24*time.Hour)
				for i, phase := range phases {
					key := limiter.Demand{Policy: "p", Identifier: keys.Identifier(rune('a' + i))}
					var mu sync.Mutex
					allowed := 0
					var all sync.WaitGroup
					for _, keyers := range phase {
						e := engineWithKeys(t, store, keyers, policy)
						running(t, e)
						for range 10 {
							all.Go(func() {
								d, err := e.Take(context.Background(), key)
								mu.Lock()
								defer mu.Unlock()
								if err == nil && d.Allowed {
									allowed++
								}
							})
						}
					}
					all.Wait()
					if allowed > 5 || allowed == 0 {
						t.Errorf("phase %d: %d of 5 passed", i+1, allowed)
					}
				}
			})
		}
	}
}

// Units that two instances count in turns under keys of their own count for both, in a store
// that knows the sum of each key's log as well.
func TestLogsOfTwoHashKeysAreAddedUp(t *testing.T) {
	one := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
	two := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
	store, policy := embedded.New(nil), policyOf("sliding-log", 5, time.Hour)
	engines := []*limiter.Engine{
		engineWithKeys(t, store, []keys.Keyer{one, two}, policy), engineWithKeys(t, store, []keys.Keyer{two, one}, policy),
	}
	for i := range 10 {
		if d := mustTake(t, engines[i%2]); d.Allowed != (i < 5) || d.Used != int64(min(i+1, 5)) {
			t.Errorf("take %d: %+v", i+1, d.Verdict)
		}
	}
}

// engineWithKeys returns an engine that writes under the first of keyers and reads
// under all.
func engineWithKeys(t *testing.T, store store.Store, keyers []keys.Keyer, p policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{Keyer: keyers[0], AlsoRead: keyers[1:], StoreTimeout: timeout})
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	return e
}

// The promise of buckets depends on the level of compare-and-set: under LOCAL_SERIAL each data
// centre has its own, under SERIAL they share, whatever the levels of reads and writes.
func TestCellsOfDataCentres(t *testing.T) {
	for _, test := range []struct {
		serial, level policy.Level
		used          int64 // in the other data centre
	}{
		{policy.LevelLocalSerial, policy.LevelQuorum, 0},
		{policy.LevelSerial, policy.LevelLocalQuorum, 1},
	} {
		bubble(t, string(test.serial)+" "+string(test.level), func(t *testing.T) {
			store := newFakeStore()
			p := policyOf("token-bucket", 5, 24*time.Hour)
			p.Consistency = policy.Consistency{Write: test.level, Read: test.level}
			in := func(datacenter string) *limiter.Engine {
				e := limiter.New(store, &limiter.Options{Datacenter: datacenter, Serial: test.serial})
				if err := e.SetPolicies([]policy.Policy{p}); err != nil {
					t.Fatal(err)
				}
				return e
			}
			answer := mustDo(t, in("east"), limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
			got, err := in("west").Check(t.Context(), somebody)
			if err != nil {
				t.Fatal(err)
			}
			if got.Used != test.used {
				t.Errorf("used %d in the other data centre, want %d", got.Used, test.used)
			}
			if err := in("east").Refund(t.Context(), answer.Receipt); err != nil {
				t.Fatal(err)
			}
			if after, _ := in("east").Check(t.Context(), somebody); after.Used != 0 {
				t.Errorf("used %d after a refund", after.Used)
			}
		})
	}
}

// A call with a guarantee over the whole cluster happens once in the whole cluster, also where
// compare-and-set ends at a data centre's border by default.
func TestOnceOverAllDataCentres(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		p := policyOf("fixed-window", 5, 24*time.Hour)
		p.Consistency = policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
		in := func(datacenter string) *limiter.Engine {
			e := limiter.New(store, &limiter.Options{Datacenter: datacenter, Serial: policy.LevelLocalSerial})
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			running(t, e)
			return e
		}
		east, west := in("east"), in("west")
		take := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
		answer := mustDo(t, east, take)
		if again := mustDo(t, west, take); !again.Replayed {
			t.Error("an idempotency key counts once in each data centre")
		}
		mustTake(t, west)
		if err := east.Refund(t.Context(), answer.Receipt); err != nil {
			t.Fatal(err)
		}
		if err := west.Refund(t.Context(), answer.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("refunded in both data centres: %v", err)
		}
		check := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second}
		held := mustDo(t, east, check)
		mustDo(t, west, limiter.Call{Op: count.OpRecord, Reservation: held.Reservation})
		time.Sleep(time.Minute)
		if got := usedBy(t, east, somebody); got != 2 {
			t.Errorf("used %d of one take and one reservation, want 2", got)
		}
	})
}

// A record of several demands that fails half way says that nobody can tell by one
// word what counts.
func TestRecordThatFailsHalfWay(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, twoPolicies(limitOf("sliding-log", 5), limitOf("fixed-window", 5))...)
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Add) > 0 {
					return errors.Join(store.ErrUnavailable, store.ErrNotStored)
				}
				return nil
			}
		})
		_, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: both})
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("one is recorded and one is not: %v", err)
		}
	})
}

// Two instances that are changing the hash key know a repeated call as the same.
func TestRepetitionWhileTheHashKeyChanges(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		was := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
		will := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
		store := newFakeStore()
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
		for i, keyers := range [][]keys.Keyer{{was}, {was, will}, {will, was}} {
			answer := mustDo(t, engineWithKeys(t, store, keyers, policyOf("sliding-log", 5, time.Hour)), call)
			if answer.Replayed != (i > 0) {
				t.Errorf("phase %d: replayed %v", i+1, answer.Replayed)
			}
		}
	})
}

// A serial read that others' compare-and-set keeps from being answered is tried again.
func TestSerialReadIsPatient(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("token-bucket", 3, time.Hour))
		mustTake(t, e)
		refusals := 2
		s.set(func() {
			s.afterRead = func(*store.State) error {
				if refusals--; refusals >= 0 {
					return store.ErrUnavailable
				}
				return nil
			}
		})
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 1 {
			t.Errorf("refused twice, then answered: %+v, %v", d.Verdict, err)
		}
		refusals = 1000
		if _, err := e.Check(t.Context(), somebody); err == nil {
			t.Error("answered by a store that only refuses")
		}
		if got := 1000 - refusals; got > 10 {
			t.Errorf("asked %d times", got)
		}
	})
}

// TestFirstCallAsksForItsCountsAlone checks that an instance that has caught up gives a receipt without asking for the
// secret.
func TestFirstCallAsksForItsCountsAlone(t *testing.T) {
	s := newFakeStore()
	e := limiter.New(s, &limiter.Options{StoreTimeout: timeout})
	must(t, e.SetPolicies([]policy.Policy{policyOf("sliding-log", 2, time.Hour)}))
	must(t, e.CatchUp(t.Context()))
	reads, writes := len(s.reads), len(s.writes)
	answer := mustDo(t, e, *callOf(somebody))
	if answer.Receipt == "" || len(s.reads) != reads+1 || len(s.writes) != writes+1 {
		t.Errorf("receipt %q by %d reads and %d writes, want one by one of each", answer.Receipt, len(s.reads)-reads, len(s.writes)-writes)
	}
}

// TestChecksOfACellShareReads holds that checks of a bucket which wait at the same time share one serial read, as each holds
// up the bucket's writes, and that it begins after them: they see what was counted before.
func TestChecksOfACellShareReads(t *testing.T) {
	bubble(t, "token-bucket", func(t *testing.T) {
		const callers = 50
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("token-bucket", 3, time.Hour))
		mustTake(t, e)
		s.set(func() {
			s.afterRead = func(*store.State) error {
				time.Sleep(time.Millisecond)
				return nil
			}
		})
		before, _ := s.counts()
		var all sync.WaitGroup
		check := func(used int64) {
			if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != used {
				t.Errorf("%+v, %v, want %d used", d.Verdict, err, used)
			}
		}
		all.Go(func() { check(1) })
		synctest.Wait()
		mustTake(t, e)
		for range callers {
			all.Go(func() { check(2) })
		}
		all.Wait()
		if reads, _ := s.counts(); reads != before+2 {
			t.Errorf("%d reads for %d checks, want the one that was under way and one more", reads-before, callers+1)
		}
	})
}
