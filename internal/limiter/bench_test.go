package limiter_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// BenchmarkAlgorithm measures one judgement by the pure functions, of a key at
// nine of its ten units.
func BenchmarkAlgorithm(b *testing.B) {
	for _, name := range policy.Algorithms() {
		b.Run(name, func(b *testing.B) {
			m := limiter.NewMachine(policyOf(name, 10, time.Hour))
			m.Do(count.OpRecord, someMorning, 1)
			for range 8 {
				m.Do(count.OpRecord, someMorning+1, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Do(count.OpCheck, someMorning+2, 1)
			}
		})
	}
}

// BenchmarkEmbeddedTake measures a take in process: hash, lock, judge, store. Keys
// are those of ten thousand callers, or one.
func BenchmarkEmbeddedTake(b *testing.B) {
	for _, name := range policy.Algorithms() {
		for _, callers := range []int{1, 10_000} {
			b.Run(name+"/callers="+strconv.Itoa(callers), func(b *testing.B) {
				e := limiter.New(embedded.New(nil), nil)
				if err := e.SetPolicies([]policy.Policy{policyOf(name, 10, time.Hour)}); err != nil {
					b.Fatal(err)
				}
				demands := make([]limiter.Demand, callers)
				for i := range demands {
					demands[i] = limiter.Demand{Policy: "p", Identifier: keys.Identifier("+49151" + strconv.Itoa(10_000_000+i))}
				}
				b.ReportAllocs()
				var next atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
						if _, err := e.Take(context.Background(), demands[i%callers]); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkEmbeddedAllowed measures takes that are all allowed: of a caller that asks as often as the limit lets, so
// that a log is always full and windows go by.
func BenchmarkEmbeddedAllowed(b *testing.B) {
	const limit = 10
	const apart = time.Minute / (limit - 1) // 1.4e9 of them before a Duration is full
	for _, name := range policy.Algorithms() {
		b.Run(name, func(b *testing.B) {
			came := 0
			now := func() time.Time { return time.Now().Add(time.Duration(came) * apart) }
			e := limiter.New(embedded.New(&embedded.Options{Now: now}), &limiter.Options{Now: now})
			if err := e.SetPolicies([]policy.Policy{policyOf(name, limit, time.Minute)}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				came++
				if d, err := e.Take(context.Background(), somebody); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// BenchmarkEmbeddedLog measures takes of a caller whose log is full: more than it lets, and as
// many as it lets, so that an event leaves for each that comes.
func BenchmarkEmbeddedLog(b *testing.B) {
	for _, limit := range []int{10, 100, 1000, 10_000} {
		for name, pause := range map[string]time.Duration{"denied": 0, "allowed": time.Hour / time.Duration(limit)} {
			b.Run(name+"/limit="+strconv.Itoa(limit), func(b *testing.B) {
				came := time.Now()
				now := func() time.Time { return came }
				e := limiter.New(embedded.New(&embedded.Options{Now: now}), &limiter.Options{Now: now})
				if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", int64(limit), time.Hour)}); err != nil {
					b.Fatal(err)
				}
				for range limit {
					came = came.Add(pause)
					mustTake(b, e)
				}
				b.ReportAllocs()
				for b.Loop() {
					came = came.Add(pause)
					if d, err := e.Take(context.Background(), somebody); err != nil || d.Allowed != (pause > 0) {
						b.Fatal(d, err)
					}
				}
			})
		}
	}
}

// BenchmarkEmbeddedCall measures a call of several demands that stand or fall together,
// its receipt included.
func BenchmarkEmbeddedCall(b *testing.B) {
	for _, demands := range []int{1, 3} {
		b.Run("demands="+strconv.Itoa(demands), func(b *testing.B) {
			e := limiter.New(embedded.New(nil), nil)
			if err := e.SetPolicies([]policy.Policy{policyOf("sliding-tail", policy.MaxLimit, time.Hour)}); err != nil {
				b.Fatal(err)
			}
			call := limiter.Call{Op: count.OpTake}
			for i := range demands {
				call.Demands = append(call.Demands, limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(i))})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Do(context.Background(), &call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUnaskedTake measures takes for which neither a store that is shared nor an owner is
// asked: denials that are remembered.
func BenchmarkUnaskedTake(b *testing.B) {
	for name, p := range map[string]policy.Policy{
		"tail":            policyOf("sliding-tail", 10, time.Hour),
		"log":             policyOf("sliding-log", 10, time.Hour),
		"log of an owner": policyOf("sliding-log", 10, time.Hour),
	} {
		b.Run(name, func(b *testing.B) {
			s := embedded.New(nil)
			opts := limiter.Options{Feed: s}
			engine := func() *limiter.Engine {
				e := limiter.New(struct{ store.Store }{s}, &opts)
				if err := e.SetPolicies([]policy.Policy{p}); err != nil {
					b.Fatal(err)
				}
				return e
			}
			if strings.HasSuffix(name, "owner") {
				opts.Owners = ownsAll()
				opts.Owners = &owners{other: &toOwner{engine: engine()}}
			}
			e := engine()
			b.ReportAllocs()
			asked := 0
			for b.Loop() {
				d, err := e.Take(context.Background(), somebody)
				if err != nil {
					b.Fatal(err)
				}
				if !d.Remembered {
					asked++
				}
			}
			b.ReportMetric(float64(asked)/float64(b.N), "asked/op")
		})
	}
}

// BenchmarkLocalTake measures a take that its owner admits from memory and writes behind, to a store that
// is in memory as well, by ten thousand callers within their limit.
func BenchmarkLocalTake(b *testing.B) {
	for _, name := range policy.Algorithms() {
		b.Run(name, func(b *testing.B) {
			e := limiter.New(struct{ store.Store }{embedded.New(nil)}, &limiter.Options{Owners: &owners{term: &tenancy{}}})
			if err := e.SetPolicies([]policy.Policy{inMemory(name, policy.MaxLogLimit, time.Hour)}); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = e.Run(ctx) }()
			b.ReportAllocs()
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
					id := keys.Identifier("+49151" + strconv.Itoa(10_000_000+i%10_000))
					if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: id}); err != nil {
						b.Fatal(err)
					}
				}
			})
			cancel()
			<-done
		})
	}
}

// BenchmarkEmbeddedNewKeys measures takes of callers never seen before.
func BenchmarkEmbeddedNewKeys(b *testing.B) {
	e := limiter.New(embedded.New(&embedded.Options{MaxKeys: 1 << 30}), nil)
	if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 10, time.Hour)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(i))}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEmbeddedLiveKeys measures takes from so many keys, each of which has counted before.
func BenchmarkEmbeddedLiveKeys(b *testing.B) {
	e := limiter.New(embedded.New(&embedded.Options{MaxKeys: 1 << 30}), nil)
	if err := e.SetPolicies([]policy.Policy{policyOf("sliding-tail", policy.MaxLimit, time.Hour)}); err != nil {
		b.Fatal(err)
	}
	take := func(b *testing.B, i int) {
		if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(i))}); err != nil {
			b.Fatal(err)
		}
	}
	filled := 0
	for _, keys := range []int{1e3, 1e4, 1e5, 1e6, 1e7} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			for ; filled < keys; filled++ {
				take(b, filled)
			}
			b.ReportAllocs()
			for b.Loop() {
				take(b, rand.IntN(keys))
			}
		})
	}
}

// BenchmarkEmbeddedMemory measures the memory of a caller in the embedded store: of one that asked
// once, and of one that used up its limit of ten. It is one round, however often the benchmark
// would have it.
func BenchmarkEmbeddedMemory(b *testing.B) {
	for _, name := range policy.Algorithms() {
		benchmarkMemory(b, name, policyOf(name, memoryLimit, time.Hour), func(opts *limiter.Options) *limiter.Engine {
			return limiter.New(embedded.New(&embedded.Options{Now: opts.Now}), opts)
		})
	}
}

// BenchmarkOwnerMemory measures the memory that a caller takes of the key's owner, which has the counts in a store
// elsewhere.
func BenchmarkOwnerMemory(b *testing.B) {
	for _, name := range policy.Algorithms() {
		benchmarkMemory(b, name, policyOf(name, memoryLimit, time.Hour), func(opts *limiter.Options) *limiter.Engine {
			opts.Owners = &owners{term: &allNew{}}
			return limiter.New(nowhere{}, opts)
		})
	}
}

const memoryLimit = 10

func benchmarkMemory(b *testing.B, name string, p policy.Policy, newEngine func(*limiter.Options) *limiter.Engine) {
	const callers = 1 << 16
	for _, came := range []int{1, memoryLimit} {
		b.Run(name+"/came="+strconv.Itoa(came), func(b *testing.B) {
			now := time.Now()
			before := heapBytes()
			e := newEngine(&limiter.Options{Now: func() time.Time { return now }})
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				b.Fatal(err)
			}
			for range came {
				for i := range callers {
					id := keys.Identifier("+49151" + strconv.Itoa(10_000_000+i))
					if d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: id}); err != nil || !d.Allowed {
						b.Fatal(d, err)
					}
				}
				now = now.Add(time.Hour / memoryLimit)
			}
			b.ReportMetric(float64(heapBytes()-before)/callers, "B/caller")
			runtime.KeepAlive(e)
		})
	}
}

// nowhere is a store that is told, and keeps nothing: what an owner remembers is all there is.
type nowhere struct{}

func (nowhere) Read(_ context.Context, q *store.Query) (store.State, error) {
	return store.State{Logs: make([]store.Log, len(q.Logs))}, nil
}
func (nowhere) Write(context.Context, *store.Write) error { return nil }

func (n nowhere) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, n, w, wrote)
}

func (n nowhere) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, n, w, q)
}

// allNew is the term of an owner of all keys, for which nothing was counted.
type allNew struct{ sole }

func (allNew) IsNew(store.Key, time.Duration) bool { return true }

// heapBytes returns how many bytes of the heap are in use.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC() // what pools held is gone only now
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
