package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// testFeed publishes changes dated now, as a store may expire them by its own clock.
func testFeed(t *testing.T, in store.Store) {
	feed, ok := in.(store.Feed)
	if !ok {
		t.Skip("this store has no feed of news")
	}
	s, now := newSubject(t, in), store.InstantOf(time.Now())
	var published []store.Change
	for i, c := range []store.Change{
		{Kind: store.ChangeReset, TTL: time.Hour},
		{Kind: store.ChangeBlock, TTL: 48 * time.Hour, Until: now.Add(47 * time.Hour), Strikes: 3},
		{Kind: store.ChangeRefund, TTL: time.Hour},
		{Kind: "of a later version", TTL: time.Hour},
		{Kind: store.ChangeOverride, TTL: policy.MaxWindow, Until: now.Add(time.Hour),
			Details: `{"kind":"limits"}` + strings.Repeat(" ", 4000)},
	} {
		at := now.Add(time.Duration(min(i, 3)-2) * time.Hour) // two hours ago, one hour ago, now and in an hour
		c.ID, c.Key = s.ids(at), s.key
		for range 2 {
			if err := feed.Publish(t.Context(), &c); err != nil {
				t.Fatal(err)
			}
		}
		published = append(published, c)
	}
	for _, from := range []struct {
		since store.Instant
		first int
	}{
		{0, 0},
		{now.Add(-2 * time.Hour), 0},
		{now.Add(-2*time.Hour) + 1, 1},
		{now.Add(-time.Hour), 1},
		{now, 2},
		{now.Add(time.Hour), 3},
	} {
		got, err := feed.Changes(t.Context(), &store.ChangeQuery{Since: from.since})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range published[from.first:] {
			want.TTL = 0
			if times(got, want) == 0 {
				t.Errorf("since now%+d ms: the feed lacks %+v among %d changes", from.since-now, want, len(got))
			}
		}
	}
	for _, middle := range []time.Duration{-2 * time.Hour, -2*time.Hour + time.Millisecond, -time.Hour, 0, time.Millisecond, time.Hour} {
		testPartsOfNews(t, feed, published, now.Add(middle))
	}
}

// times returns how often c is among changes, whose times to live are not compared.
func times(changes []store.Change, c store.Change) (n int) {
	for _, have := range changes {
		if have.TTL, c.TTL = 0, 0; have == c {
			n++
		}
	}
	return n
}

// testPartsOfNews reads published changes in two parts, which together have each change.
func testPartsOfNews(t *testing.T, feed store.Feed, published []store.Change, middle store.Instant) {
	t.Helper()
	before, err := feed.Changes(t.Context(), &store.ChangeQuery{Until: middle, Level: "QUORUM"})
	if err != nil {
		t.Fatal(err)
	}
	after, err := feed.Changes(t.Context(), &store.ChangeQuery{Since: middle})
	if err != nil {
		t.Fatal(err)
	}
	for i := range published {
		c := &published[i]
		if times(before, *c)+times(after, *c) == 0 { // a change may be in both parts
			t.Errorf("%s of %d is neither before %d nor from then on", c.Kind, c.ID.Instant(), middle)
		}
	}
}

// testChangesExpire reads until a change has expired.
func testChangesExpire(t *testing.T, in store.Store) {
	feed, ok := in.(store.Feed)
	if !ok {
		t.Skip("this store has no feed of news")
	}
	awaitExpiry(t, feed, newSubject(t, in))
}

// awaitExpiry publishes news of s with a time to live of a second, and reads until they are gone.
func awaitExpiry(t *testing.T, feed store.Feed, s *subject) {
	t.Helper()
	const patience = 30 * time.Second
	start := time.Now()
	c := store.Change{ID: s.ids(store.InstantOf(start)), Kind: store.ChangeReset, Key: s.key, TTL: time.Second}
	if err := feed.Publish(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ; time.Since(start) < patience; <-tick.C {
		changes, err := feed.Changes(t.Context(), &store.ChangeQuery{Since: store.InstantOf(start)})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(changes, func(have store.Change) bool { return have.ID == c.ID }) {
			return
		}
	}
	t.Errorf("a change with a time to live of a second still exists after %v", patience)
}

// testOverridesStay publishes overrides without an end and with one: the latest of each key outlives its news, in any
// order of arrival.
func testOverridesStay(t *testing.T, in store.Store) {
	feed, ok := in.(store.Feed)
	if !ok {
		t.Skip("this store has no feed of news")
	}
	now := store.InstantOf(time.Now())
	publish := func(s *subject, at, until store.Instant, details string) store.Change {
		t.Helper()
		c := store.Change{ID: s.ids(at), Kind: store.ChangeOverride, Key: s.key, TTL: time.Second, Until: until, Details: details}
		if err := feed.Publish(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	stays, replaced, ended := newSubject(t, in), newSubject(t, in), newSubject(t, in)
	want := []store.Change{publish(stays, now, store.Distant, `{"kind":"allow"}`)}
	publish(replaced, now-2, store.Distant, `{"kind":"allow"}`)
	want = append(want, publish(replaced, now, store.Distant, `{"kind":"block"}`))
	publish(replaced, now-1, store.Distant, `{"kind":"limits"}`) // arrives late
	publish(ended, now-1, store.Distant, `{"kind":"allow"}`)
	publish(ended, now, 0, "")
	awaitExpiry(t, feed, stays) // then all other news have expired, too
	got, err := feed.Overrides(t.Context(), "QUORUM")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range want {
		if times(got, c) == 0 {
			t.Errorf("the overrides lack %+v among %d", c, len(got))
		}
	}
	for _, c := range got {
		if c.Stays() && (c.Key == ended.key || c.Key == replaced.key && c.ID != want[1].ID) {
			t.Errorf("%+v is there, but was replaced", c)
		}
	}
}
