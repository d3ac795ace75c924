package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// What travels both ways is read when all of its trip is acknowledged, at the level of the
// read; what was not written is not read, and each is told which of the two failed.
func TestBothWays(t *testing.T) {
	errUnwritten, errUnread := errors.New("not written"), errors.New("not read")
	var did []string
	send := bothWays(
		func(_ context.Context, l lane, riders []*rider[*keyWrite]) {
			did = append(did, fmt.Sprintf("write %d at %v", len(riders), l.level))
			riders[1].err = errUnwritten
		},
		func(_ context.Context, l lane, riders []*rider[*int]) {
			read := "read"
			for _, r := range riders {
				read += fmt.Sprint(" ", *r.request)
				if *r.request == 2 {
					r.err = errUnread
				}
			}
			did = append(did, fmt.Sprintf("%s at %v", read, l.level))
		},
	)
	var riders []*rider[*writeRead[*int]]
	for i := range 4 {
		riders = append(riders, &rider[*writeRead[*int]]{request: &writeRead[*int]{read: rider[*int]{request: &i}}})
	}
	send(t.Context(), lane{level: gocql.EachQuorum, then: gocql.LocalOne}, riders)
	if want := []string{"write 4 at EACH_QUORUM", "read 0 2 3 at LOCAL_ONE"}; !slices.Equal(did, want) {
		t.Errorf("did %q, want %q", did, want)
	}
	for i, want := range []error{nil, errUnwritten, errUnread, nil} {
		var unread *unreadError
		if err := riders[i].err; !errors.Is(err, want) || errors.As(err, &unread) != (i == 2) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
}

// Where nothing is written there is nothing to read.
func TestBothWaysOfWhatIsNotWritten(t *testing.T) {
	send := bothWays(
		func(_ context.Context, _ lane, riders []*rider[*keyWrite]) { riders[0].err = errNegative },
		func(context.Context, lane, []*rider[*int]) { t.Error("it was read") },
	)
	r := &rider[*writeRead[*int]]{request: new(writeRead[*int])}
	send(t.Context(), lane{}, []*rider[*writeRead[*int]]{r})
	if !errors.Is(r.err, errNegative) {
		t.Error(r.err)
	}
}

// What is written and read by one request each, of one table, travels both ways.
func TestWhatTravelsBothWays(t *testing.T) {
	store := &Store{config: Config{Now: time.Now}}
	for i := range store.firstNodes.parts {
		for j := range store.firstNodes.parts[i] {
			store.firstNodes.parts[i][j].Store(&firstNode{until: time.Now().Add(time.Hour)})
		}
	}
	events, total := []limiter.Event{{Cost: 1}}, []limiter.Tally{{}}
	kept := []limiter.LogWrite{{Span: limiter.SpanDay}}
	written := limiter.Write{Events: events, Logs: kept}
	removed := written
	removed.Remove = []limiter.EventID{{}}
	const day, hour = limiter.SpanDay, limiter.SpanHour
	log := limiter.LogQuery{Span: day, Max: maxReadTogether}
	long, another := limiter.LogQuery{Span: day, Max: maxReadTogether + 1}, limiter.LogQuery{Span: hour, Max: 1}
	of := func(logs ...limiter.LogQuery) limiter.Query { return limiter.Query{Logs: logs} }
	for name, c := range map[string]struct {
		w    limiter.Write
		q    limiter.Query
		want bool
	}{
		"a log":                    {written, of(log), true},
		"another log":              {written, of(another), false},
		"a log and counters":       {written, limiter.Query{Logs: of(log).Logs, Counts: true}, false},
		"a log and totals":         {written, limiter.Query{Logs: of(log).Logs, Tally: true}, false},
		"much of a log":            {written, of(long), false},
		"two logs":                 {limiter.Write{Events: events, Logs: append(kept, kept...)}, of(log), false},
		"a log, of which two":      {written, of(log, another), false},
		"what is removed":          {removed, of(log), false},
		"totals":                   {limiter.Write{Put: total, Span: day}, limiter.Query{Tally: true, Span: day}, true},
		"totals of another span":   {limiter.Write{Put: total, Span: day}, limiter.Query{Tally: true, Span: hour}, false},
		"totals, and a log":        {limiter.Write{Put: total, Span: day}, limiter.Query{Logs: of(log).Logs, Tally: true, Span: day}, false},
		"totals, of which nothing": {limiter.Write{Put: total}, limiter.Query{}, false},
		"counters":                 {limiter.Write{Add: []limiter.Count{{}}}, limiter.Query{Counts: true}, false},
		"a cell":                   {limiter.Write{Cell: new(limiter.CellWrite)}, limiter.Query{Cell: true}, false},
	} {
		c.w.Level, c.q.Level = limiter.LevelQuorum, limiter.LevelOne
		_, l, ok := store.bothWaysOf(&c.w, &c.q)
		if ok != c.want {
			t.Errorf("%s: %v, want %v", name, ok, c.want)
		}
		if ok && (l.level != gocql.Quorum || l.ofRead().level != gocql.One) {
			t.Errorf("%s: written at %v, read at %v", name, l.level, l.ofRead().level)
		}
	}
}

// Batches have no more than they may, and as many about as the others.
func TestInBatches(t *testing.T) {
	for n, want := range map[int][]int{1: {1}, 10: {10}, 11: {6, 5}, 20: {10, 10}, 25: {9, 9, 7}} {
		riders := make([]*rider[int], n)
		for i := range riders {
			riders[i] = new(rider[int])
		}
		sizes := make(chan int, n)
		inBatches(riders, 10, func(some []*rider[int]) {
			for _, r := range some {
				r.parts++
			}
			sizes <- len(some)
		})
		close(sizes)
		var got []int
		for size := range sizes {
			got = append(got, size)
		}
		slices.Sort(got)
		slices.Reverse(got)
		if !slices.Equal(got, want) || slices.ContainsFunc(riders, func(r *rider[int]) bool { return r.parts != 1 }) {
			t.Errorf("%d: batches of %v, want %v, each rider once", n, got, want)
		}
	}
}
