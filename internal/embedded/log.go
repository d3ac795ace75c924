package embedded

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// eventLog is the events of one key and span, in order of time.
type eventLog struct {
	events []store.Event
	sum    int64   // of their costs; the largest number: it may be more
	ttl    seconds // the longest that an event was given
	holds  bool    // some of them may be holds
	marks
}

// seconds is a time to live.
type seconds uint32

// secondsOf returns d, of whole seconds, or the most that there are.
func secondsOf(d time.Duration) seconds { return seconds(min(int64(d/time.Second), math.MaxUint32)) }

func (s seconds) duration() time.Duration { return time.Duration(s) * time.Second }

const (
	// spareEvents is how far a log may outgrow what matters before its oldest events
	// are merged, so that merging is rare.
	spareEvents = 16
	// searchedEvents is how many events of one millisecond an append looks at for one
	// that has its ID: enough for an append that is repeated, and little beside the append
	// itself. Settling looks at all of them.
	searchedEvents = 8
	// holdMargin is how long an ended hold is left to those who count it by a clock
	// that is behind: twice as far as two clocks are ever allowed to be apart.
	holdMargin = 2 * time.Minute
)

// newest returns the last n events at most that are later than after. Holds that had
// ended at now are no part of the n, so that they hide nothing that counts.
func (l *eventLog) newest(after store.Instant, n int, now store.Instant) store.Log {
	events := l.events
	first := max(0, len(events)-n)
	if l.holds {
		first = firstOf(events, n, now)
	}
	if first < len(events) && events[first].At <= after { // most often it is later
		first += sort.Search(len(events)-first, func(i int) bool { return events[first+i].At > after })
	}
	log := store.Log{Events: events, Sum: l.sum}
	if l.holds || l.sum == math.MaxInt64 {
		log.Sum = 0
	}
	if first == 0 {
		return log
	}
	return log.From(first)
}

// firstOf returns where the last n events begin that are no holds which had ended.
func firstOf(events []store.Event, n int, now store.Instant) int {
	i := len(events)
	for ; i > 0 && n > 0; i-- {
		if !ended(&events[i-1], now) {
			n--
		}
	}
	return i
}

func ended(e *store.Event, now store.Instant) bool { return e.Ends != 0 && e.Ends <= now }

// append adds event in order of time. If an event with its ID is there, event replaces it, and stays settled if that
// one was.
func (l *eventLog) append(event store.Event, keep int, clock *Store) {
	n := len(l.events)
	if n > 0 && l.events[n-1].At >= event.At { // most often it is later than all others
		if i := l.find(&event, searchedEvents); i >= 0 {
			if l.events[i].Ends != 0 {
				l.replace(i, event)
			}
			return
		}
	}
	if n+1 >= cap(l.events) || n >= 2*keep+spareEvents {
		l.makeRoom(keep, event.At, clock)
		n = len(l.events)
	}
	l.holds = l.holds || event.Ends != 0
	l.sum = store.AddSaturating(l.sum, event.Cost)
	if n == 0 || l.events[n-1].At <= event.At {
		l.events = append(l.events, event)
		return
	}
	l.events = slices.Insert(l.events, l.after(event.At), event)
}

// settle makes event stay, whether it is there or not. One that was dated anew since keeps that
// date.
func (l *eventLog) settle(event store.Event, keep int, clock *Store) {
	event.Ends = 0
	if i := slices.IndexFunc(l.events, func(have store.Event) bool { return have.ID == event.ID }); i >= 0 {
		event.At = l.events[i].At
		l.replace(i, event)
		return
	}
	l.append(event, keep, clock)
}

func (l *eventLog) replace(i int, event store.Event) {
	l.events[i] = event
	l.know()
}

// grow makes room for one more event: for twice as many, but up to keep for hardly more than
// that, as there most logs stay. What is beyond is an eighth, so that trimming stays rare.
func (l *eventLog) grow(keep int) {
	n := len(l.events)
	if n < cap(l.events) {
		return
	}
	room := max(1, 2*n)
	if full := keep + max(1, keep/8); n < full {
		room = min(room, full)
	}
	l.events = append(make([]store.Event, 0, room), l.events...)
}

// after returns the index of the first event later than at.
func (l *eventLog) after(at store.Instant) int {
	n := len(l.events)
	if n == 0 || l.events[n-1].At <= at {
		return n
	}
	return sort.Search(n, func(i int) bool { return l.events[i].At > at })
}

// find returns where an event with the ID and the instant of event is, -1 if it is
// not among the last few of that instant.
func (l *eventLog) find(event *store.Event, few int) int {
	last := l.after(event.At) - 1
	for i := last; i >= 0 && i > last-few && l.events[i].At == event.At; i-- {
		if l.events[i].ID == event.ID {
			return i
		}
	}
	return -1
}

// remove removes the events with these ids.
func (l *eventLog) remove(ids []store.EventID) {
	l.filter(func(have *store.Event) bool { return !slices.Contains(ids, have.ID) })
}

// know finds out what l is to know of its events.
func (l *eventLog) know() {
	l.sum = store.SumOf(l.events)
	l.holds = slices.ContainsFunc(l.events, func(have store.Event) bool { return have.Ends != 0 })
}

// filter removes all events but those for which is returns true.
func (l *eventLog) filter(is func(*store.Event) bool) {
	l.events = slices.DeleteFunc(l.events, func(have store.Event) bool { return !is(&have) })
	l.know()
}

// makeRoom makes room for two more events in a log that has none: an Update's decide appends to the
// events that it reads before the store does.
func (l *eventLog) makeRoom(keep int, at store.Instant, clock *Store) {
	if len(l.events) > 0 {
		l.trim(keep, at, clock)
	}
	l.grow(keep)
}

// trim removes events that have expired at an instant, and ended holds, and merges all others but the
// newest keep if that is still too many.
func (l *eventLog) trim(keep int, at store.Instant, clock *Store) {
	now := min(at, clock.dated())
	l.drop(l.after(now.Add(-l.ttl.duration())))
	if l.holds {
		l.filter(func(have *store.Event) bool { return !ended(have, now.Add(-holdMargin)) })
	}
	if len(l.events) >= 2*keep+spareEvents {
		l.merge(len(l.events) - keep)
		l.know()
	}
}

// drop removes the oldest n events, without a look at the others.
func (l *eventLog) drop(n int) {
	if l.sum != math.MaxInt64 {
		l.sum -= store.SumOf(l.events[:n])
		l.events = slices.Delete(l.events, 0, n)
		return
	}
	l.events = slices.Delete(l.events, 0, n)
	l.know()
}

// merge makes one event of the oldest n, which nobody can remove, dated as the
// youngest of them: that is exact for any use up to the limit. Holds become a hold of
// their own, until the last of them ends.
func (l *eventLog) merge(n int) {
	var whole, held store.Event
	for _, event := range l.events[:n] {
		into := &whole
		if event.Ends != 0 {
			into, held.Ends = &held, max(held.Ends, event.Ends)
		}
		into.At = event.At
		into.Cost = store.AddSaturating(into.Cost, event.Cost)
	}
	merged := []store.Event{whole, held}
	if held.At < whole.At {
		merged[0], merged[1] = held, whole
	}
	merged = slices.DeleteFunc(merged, func(e store.Event) bool { return e.Cost == 0 })
	l.events = slices.Replace(l.events, 0, n, merged...)
}
