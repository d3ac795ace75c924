package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// limited answers like a service that applies a limit to each caller.
func limited(limit int64) http.HandlerFunc {
	var mu sync.Mutex
	used := make(map[string]int64)
	return func(w http.ResponseWriter, r *http.Request) {
		var o operation
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if used[o.Identifier]+o.Cost > limit {
			w.WriteHeader(http.StatusTooManyRequests)
		} else {
			used[o.Identifier] += o.Cost
		}
		fmt.Fprintln(w, "{}")
	}
}

// ask puts a load of 4 connections on answer for 0.4 s, after a warm-up of 0.1 s.
func ask(t *testing.T, ctx context.Context, answer http.HandlerFunc, change func(*Options, *Target)) (*Result, error) {
	t.Helper()
	to := target(t, 0, answer)
	keys, _ := ParseKeys("unique")
	o := Options{
		Connections: 4, WarmUp: 100 * time.Millisecond, Duration: 400 * time.Millisecond, Keys: keys, Seed: 1,
		Limit: 10, Window: 24 * time.Hour,
	}
	change(&o, &to)
	o.Open = to.Open
	return Run(ctx, o)
}

func TestConnectionsAreAskedByOneThread(t *testing.T) {
	for _, keys := range Distributions() {
		r, err := ask(t, t.Context(), limited(10), func(o *Options, _ *Target) { o.Keys = keys })
		if err != nil {
			t.Fatal(err)
		}
		if r.WrongDenials != 0 || r.OverAdmitted != 0 {
			t.Errorf("%v: %d denied wrongly, %d too many", keys, r.WrongDenials, r.OverAdmitted)
		}
		if err := r.Check(); err != nil || r.Sent() == 0 || r.Failed != 0 || r.Latency.TotalCount() != r.Sent() {
			t.Errorf("%v: %v; %+v", keys, err, r.Outcome)
		}
	}
}

// Otherwise goroutines could make all these calls without anybody noticing.
func TestLoopsOfOneThread(t *testing.T) {
	over := func(callers ...Caller) (workers []*worker) {
		for _, c := range callers {
			workers = append(workers, &worker{caller: c})
		}
		return workers
	}
	own := open(t, target(t, 0, limited(1)), 1)
	for _, c := range []struct {
		workers []*worker
		want    bool
	}{
		{over(own, own), runtime.GOOS == "linux"},
		{over(own, connection{}), false},
	} {
		if got := pollable(c.workers); got != c.want {
			t.Errorf("%d workers: %v, want %v", len(c.workers), got, c.want)
		}
	}
}

// A service that stalls for a fifth of a second delays all calls due in that time. A closed loop would see only 4 of them.
func TestOneThreadCountsWhatWasDueWhileStalled(t *testing.T) {
	var stalled atomic.Pointer[time.Time] // until then
	answer := limited(10)
	r, err := ask(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		until := time.Now().Add(200 * time.Millisecond)
		stalled.CompareAndSwap(nil, &until)
		time.Sleep(time.Until(*stalled.Load()))
		answer(w, r)
	}, func(o *Options, _ *Target) { o.Rate, o.WarmUp = 500, 0 })
	if err != nil {
		t.Fatal(err)
	}
	late := int64(0)
	for _, bar := range r.Latency.Distribution() {
		if bar.From >= int64(100*time.Millisecond) {
			late += bar.Count
		}
	}
	if r.Sent() != 200 || late < 45 {
		t.Errorf("sent %d of 200; %d of the 50 that were due in the first 100 ms waited as long", r.Sent(), late)
	}
}

func TestBrokenConnectionsFailAndOthersFollow(t *testing.T) {
	var calls atomic.Int64
	answer := limited(10)
	r, err := ask(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 5:
			panic(http.ErrAbortHandler)
		case 10: // answers nothing that can be understood
			_ = http.NewResponseController(w).Flush()
		case 15: // answers, and closes
			w.Header().Set("Connection", "close")
			fallthrough
		default:
			answer(w, r)
		}
	}, func(*Options, *Target) {})
	if err != nil {
		t.Fatal(err)
	}
	// A third call fails if it uses the connection that was closed after an answer before the end of that is seen.
	if err := r.Check(); err != nil || r.Whole.Failed < 2 || r.Whole.Failed > 3 || r.Whole.Sent() != calls.Load()+r.Whole.Failed-2 {
		t.Errorf("%v; %+v of %d", err, r.Whole, calls.Load())
	}
}

// A call that is never answered fails when its connection has been open for as long as a run may take.
func TestCallsThatAreNotAnsweredFail(t *testing.T) {
	var calls atomic.Int64
	answer := limited(10)
	r, err := ask(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			_, _ = io.Copy(io.Discard, r.Body) // only then does net/http notice the end of a connection
			<-r.Context().Done()
			return
		}
		answer(w, r)
	}, func(_ *Options, to *Target) { to.Lifetime = time.Second })
	if err != nil {
		t.Fatal(err)
	}
	if r.Whole.Failed != 1 || r.Whole.Sent() != calls.Load() {
		t.Errorf("%+v of %d, want one that failed", r.Whole, calls.Load())
	}
}

func TestOneThreadStopsWhenToldTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.Now()
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err := ask(t, ctx, limited(10), func(o *Options, _ *Target) { o.Duration = time.Minute })
	if took := time.Since(begin); took > 30*time.Second || err == nil {
		t.Errorf("ended after %v: %v", took, err)
	}
}
