package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// station has trips of numbers whose answers take a second, and a record of these trips.
type station struct {
	trips[int]
	mu    sync.Mutex
	alone []int
	sent  [][]int
	at    []time.Duration // when each trip was sent
	began time.Time
}

const roundTrip = time.Second

// first returns the number that finds the queue free.
func first() []int { return []int{100} }

func newStation() *station {
	s := &station{began: time.Now()}
	s.most, s.timeout = maxWritten, 3*roundTrip
	s.send = func(ctx context.Context, _ lane, items []*item[int]) {
		var numbers []int
		if ends, _ := ctx.Deadline(); time.Until(ends) != s.timeout {
			items[0].err = fmt.Errorf("the trip has until %v", ends)
		}
		for _, r := range items {
			numbers = append(numbers, r.request)
			if r.request < 0 {
				r.err = errNegative
			}
		}
		s.mu.Lock()
		s.sent, s.at = append(s.sent, numbers), append(s.at, time.Since(s.began))
		s.mu.Unlock()
		time.Sleep(roundTrip)
	}
	return s
}

var errNegative = errors.New("negative")

// ask sends n, and returns when it is answered.
func (s *station) ask(ctx context.Context, n, parts int) error {
	return s.do(ctx, lane{}, n, parts, func(context.Context) error {
		s.mu.Lock()
		s.alone = append(s.alone, n)
		s.mu.Unlock()
		time.Sleep(roundTrip)
		return nil
	})
}

// askEach asks for each number in turn, without waiting for answers. The function that it
// returns waits for all of them.
func (s *station) askEach(t *testing.T, numbers []int, parts int) (wait func()) {
	t.Helper()
	var all sync.WaitGroup
	for _, n := range numbers {
		all.Go(func() {
			if err := s.ask(t.Context(), n, parts); (err != nil) != (n < 0) {
				t.Errorf("%d: %v", n, err)
			}
		})
		synctest.Wait()
	}
	return all.Wait
}

func TestTrips(t *testing.T) {
	for _, c := range []struct {
		name    string
		numbers []int // after the first
		parts   int
		sent    [][]int
	}{
		{"who finds the queue free goes alone", nil, 1, nil},
		{"who doesn't goes with the others", []int{3, -4, 5}, 1, [][]int{{3, -4, 5}}},
		{"no more keys than a batch may have", []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, 1,
			[][]int{{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {13, 14}}},
		{"nor more rows", []int{3, 4, 5}, maxTripParts/2 + 1, [][]int{{3}, {4}, {5}}},
		{"one that is too large for company", []int{3, 4}, maxTripParts + 1, [][]int{{3}, {4}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStation()
				s.askEach(t, append(first(), c.numbers...), c.parts)()
				slices.SortFunc(s.sent, slices.Compare) // those that are sent off at one instant take note in any order
				if !slices.Equal(s.alone, first()) || !slices.EqualFunc(s.sent, c.sent, slices.Equal) {
					t.Errorf("alone %v, together %v; want %v, %v", s.alone, s.sent, first(), c.sent)
				}
			})
		})
	}
}

// A node that does not answer holds nobody up for longer than the patience of those that wait,
// and those that wait go as soon as another is back, or a trip is full.
func TestTripsWaitBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		var numbers []int
		for n := range maxWritten {
			numbers = append(numbers, n)
		}
		s.askEach(t, append(first(), numbers...), 1)()
		if len(s.at) != 1 || s.at[0] != 0 || len(s.sent[0]) != maxWritten {
			t.Errorf("%v went after %v, want all of them at once", s.sent, s.at)
		}
	})
	synctest.Test(t, func(t *testing.T) { // each has a patience of its own
		s := newStation()
		defer s.askEach(t, first(), 1)()
		for n := range 3 {
			defer s.askEach(t, []int{n}, 1)()
			time.Sleep(tripPatience * 3 / 4)
		}
		time.Sleep(roundTrip / 2)
		s.mu.Lock()
		defer s.mu.Unlock()
		if want := []time.Duration{tripPatience, tripPatience * 10 / 4}; !slices.Equal(s.at, want) {
			t.Errorf("those that waited went after %v, want %v: %v", s.at, want, s.sent)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		s.askEach(t, append(first(), 3), 1)()
		if len(s.at) != 1 || s.at[0] != tripPatience {
			t.Errorf("one that waited went after %v, want %v", s.at, tripPatience)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		defer s.askEach(t, first(), 1)()
		time.Sleep(roundTrip - tripPatience/2)
		s.askEach(t, []int{3}, 1)()
		if len(s.at) != 1 || s.at[0] != roundTrip {
			t.Errorf("one that waited went after %v, want %v", s.at, roundTrip)
		}
	})
}

// A request whose caller leaves before the trip is not sent; once the trip has begun, nobody
// can tell.
func TestTripsAreLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		defer s.askEach(t, first(), 1)()
		leave := func(n int, after time.Duration, sent bool) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			err := s.ask(ctx, n, 1)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrNotStored) == sent {
				t.Errorf("%d, that left after %v: %v", n, after, err)
			}
		}
		var all sync.WaitGroup
		all.Go(func() { leave(3, tripPatience/2, false) })
		all.Go(func() { leave(4, 2*tripPatience, true) })
		all.Wait()
		time.Sleep(2 * roundTrip) // until the abandoned trip is back
		synctest.Wait()
		if !slices.EqualFunc(s.sent, [][]int{{4}}, slices.Equal) {
			t.Errorf("sent %v, want 4 alone", s.sent)
		}
	})
}

// There is an end to those that wait.
func TestTripsAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		s.queues = map[lane]*queue[int]{{}: {underWay: tripsUnderWay, waiting: make([]*item[int], maxTripWaiting)}}
		if err := s.ask(t.Context(), 1, 1); !errors.Is(err, store.ErrOverloaded) || !errors.Is(err, store.ErrNotStored) {
			t.Errorf("one more than %d: %v", maxTripWaiting, err)
		}
	})
}

// Those that come together go in full trips at once, as many as may be under way, and each is told.
func TestTripsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStation()
		var mu sync.Mutex
		told := make(map[int]error)
		var items []*item[int]
		for n := range tripsUnderWay*maxWritten + 3 {
			if n == 5 {
				n = -5
			}
			items = append(items, &item[int]{request: n, parts: 1, onDone: func(r *item[int]) {
				mu.Lock()
				defer mu.Unlock()
				told[r.request] = r.err
			}})
		}
		s.doAll(lane{}, items)
		synctest.Wait()
		s.mu.Lock()
		if len(s.sent) != tripsUnderWay || len(s.alone) != 0 {
			t.Errorf("%d trips and %v alone went at once, want %d full ones", len(s.sent), s.alone, tripsUnderWay)
		}
		s.mu.Unlock()
		time.Sleep(2*roundTrip + tripPatience)
		synctest.Wait()
		if last := len(s.sent) - 1; last != tripsUnderWay || len(s.sent[last]) != 3 || s.at[last] != tripPatience {
			t.Errorf("%v went after %v, want three more after %v", s.sent, s.at, tripPatience)
		}
		if len(told) != len(items) || !errors.Is(told[-5], errNegative) || told[1] != nil {
			t.Errorf("%d of %d are told, of one that failed %v, of another %v", len(told), len(items), told[-5], told[1])
		}
		if on := s.queues[lane{}]; on.underWay != 0 || on.parts != 0 || len(on.waiting) != 0 {
			t.Errorf("%+v is left", on)
		}
	})
}

// Requests for different nodes, tables or levels do not travel together.
func TestLanesOfEach(t *testing.T) {
	e := new(each)
	for i, l := range []lane{{node: "a"}, {node: "b"}, {node: "a"}, {node: "a", level: gocql.One}, {node: "a", span: store.SpanDay}} {
		e.board(l, &item[*keyWrite]{parts: i})
	}
	var got [][]int
	for _, boarded := range e.lanes {
		var parts []int
		for _, r := range boarded.items {
			parts = append(parts, r.parts)
		}
		got = append(got, parts)
	}
	if want := [][]int{{0, 2}, {1}, {3}, {4}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v travel together, want %v", got, want)
	}
}

// More than there is an end to are told so, all of them.
func TestTripsOfTooMany(t *testing.T) {
	s := newStation()
	s.queues = map[lane]*queue[int]{{}: {underWay: tripsUnderWay, waiting: make([]*item[int], maxTripWaiting-1)}}
	told := 0
	refused := func(r *item[int]) {
		told++
		if !errors.Is(r.err, store.ErrOverloaded) || !errors.Is(r.err, store.ErrNotStored) {
			t.Error(r.err)
		}
	}
	s.doAll(lane{}, []*item[int]{{request: 1, parts: 1, onDone: refused}, {request: 2, parts: 1, onDone: refused}})
	if on := s.queues[lane{}]; told != 2 || len(on.waiting) != maxTripWaiting-1 || on.parts != 0 {
		t.Errorf("%d of 2 are told, %d wait", told, len(on.waiting))
	}
}

// Each caller takes the rows that it asked for out of those read for several.
func TestNewestOf(t *testing.T) {
	rows := []store.Event{{At: 9}, {At: 8, Ends: 20}, {At: 7}, {At: 6, Ends: 20}, {At: 5}}
	for _, c := range []struct {
		after store.Instant
		most  int
		want  []store.Instant
	}{
		{0, 9, []store.Instant{5, 6, 7, 8, 9}},
		{6, 9, []store.Instant{7, 8, 9}},
		{0, 2, []store.Instant{7, 8, 9}}, // holds come on top
		{9, 9, nil},
	} {
		var got []store.Instant
		for _, e := range newestOf(rows, &store.LogQuery{After: c.after, Max: c.most}) {
			got = append(got, e.At)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d after %d: %v, want %v", c.most, c.after, got, c.want)
		}
	}
}

// A read of minutes does not travel with one of hours, which would have it walk over what has
// expired since.
func TestReadsTravelWithThoseThatReadAsFarBack(t *testing.T) {
	const now = store.Instant(1_800_000_000_000)
	back := func(d time.Duration) lane { return lane{}.reading(now.Add(-d), now) }
	if back(time.Minute) == back(time.Hour) || back(0) == back(time.Second) || back(24*time.Hour) == back(31*24*time.Hour) {
		t.Error("they share a lane")
	}
	if back(time.Minute) != back(time.Minute+3*time.Millisecond) || back(0) != back(-time.Hour) {
		t.Error("they are apart")
	}
}
