package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests that travel both ways are read when all of their trip is acknowledged, at the level
// of the read; if the write failed, nothing is read, and each is told which of the two failed.
func TestBothWays(t *testing.T) {
	errUnwritten, errUnread := errors.New("not written"), errors.New("not read")
	var did []string
	send := bothWays(
		func(_ context.Context, l lane, items []*item[*keyWrite]) {
			did = append(did, fmt.Sprintf("write %d at %v", len(items), l.level))
			items[1].err = errUnwritten
		},
		func(_ context.Context, l lane, items []*item[*keyRead]) {
			read := "read"
			for _, r := range items {
				read += fmt.Sprint(" ", r.request.after)
				if r.request.after == 2 {
					r.err = errUnread
				}
			}
			did = append(did, fmt.Sprintf("%s at %v", read, l.level))
		},
	)
	var items []*item[*writeRead]
	for i := range store.Instant(4) {
		items = append(items, &item[*writeRead]{request: &writeRead{read: item[*keyRead]{request: &keyRead{after: i}}}})
	}
	send(t.Context(), lane{level: gocql.EachQuorum, then: gocql.LocalOne}, items)
	if want := []string{"write 4 at EACH_QUORUM", "read 0 2 3 at LOCAL_ONE"}; !slices.Equal(did, want) {
		t.Errorf("did %q, want %q", did, want)
	}
	for i, want := range []error{nil, errUnwritten, errUnread, nil} {
		var unread *unreadError
		if err := items[i].err; !errors.Is(err, want) || errors.As(err, &unread) != (i == 2) {
			t.Errorf("%d: %v, want %v", i, err, want)
		}
	}
}

// Where nothing is written there is nothing to read.
func TestBothWaysOfWhatIsNotWritten(t *testing.T) {
	send := bothWays(
		func(_ context.Context, _ lane, items []*item[*keyWrite]) { items[0].err = errNegative },
		func(context.Context, lane, []*item[*keyRead]) { t.Error("it was read") },
	)
	r := &item[*writeRead]{request: new(writeRead)}
	send(t.Context(), lane{}, []*item[*writeRead]{r})
	if !errors.Is(r.err, errNegative) {
		t.Error(r.err)
	}
}

// Writes and reads of one request each, of one table, travel both ways.
func TestWhatTravelsBothWays(t *testing.T) {
	s := &Store{config: Config{Now: time.Now}}
	for i := range s.firstNodes.parts {
		for j := range s.firstNodes.parts[i] {
			s.firstNodes.parts[i][j].Store(&firstNode{until: time.Now().Add(time.Hour)})
		}
	}
	events, total := []store.Event{{Cost: 1}}, []store.Tally{{}}
	kept := []store.LogWrite{{Span: store.SpanDay}}
	written := store.Write{Events: events, Logs: kept}
	removed := written
	removed.Remove = []store.EventID{{}}
	const day, hour = store.SpanDay, store.SpanHour
	log := store.LogQuery{Span: day, Max: maxReadTogether}
	long, another := store.LogQuery{Span: day, Max: maxReadTogether + 1}, store.LogQuery{Span: hour, Max: 1}
	of := func(logs ...store.LogQuery) store.Query { return store.Query{Logs: logs} }
	for name, c := range map[string]struct {
		w    store.Write
		q    store.Query
		want bool
	}{
		"a log":                    {written, of(log), true},
		"another log":              {written, of(another), false},
		"a log and counters":       {written, store.Query{Logs: of(log).Logs, Counts: true}, false},
		"a log and totals":         {written, store.Query{Logs: of(log).Logs, Tally: true}, false},
		"much of a log":            {written, of(long), false},
		"two logs":                 {store.Write{Events: events, Logs: append(kept, kept...)}, of(log), false},
		"a log, of which two":      {written, of(log, another), false},
		"what is removed":          {removed, of(log), false},
		"totals":                   {store.Write{Put: total, Span: day}, store.Query{Tally: true, Span: day}, true},
		"totals of another span":   {store.Write{Put: total, Span: day}, store.Query{Tally: true, Span: hour}, false},
		"totals, and a log":        {store.Write{Put: total, Span: day}, store.Query{Logs: of(log).Logs, Tally: true, Span: day}, false},
		"totals, of which nothing": {store.Write{Put: total}, store.Query{}, false},
		"counters":                 {store.Write{Add: []store.Count{{}}}, store.Query{Counts: true}, false},
		"a cell":                   {store.Write{Cell: new(store.CellWrite)}, store.Query{Cell: true}, false},
	} {
		c.w.Level, c.q.Level = policy.LevelQuorum, policy.LevelOne
		_, l, ok := s.bothWaysOf(&c.w, &c.q)
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
		items := make([]*item[int], n)
		for i := range items {
			items[i] = new(item[int])
		}
		sizes := make(chan int, n)
		inBatches(items, 10, func(some []*item[int]) {
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
		if !slices.Equal(got, want) || slices.ContainsFunc(items, func(r *item[int]) bool { return r.parts != 1 }) {
			t.Errorf("%d: batches of %v, want %v, each item once", n, got, want)
		}
	}
}
