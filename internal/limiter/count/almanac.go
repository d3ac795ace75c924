package count

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// almanac computes the start of a calendar's windows in a time zone. It is safe for concurrent use.
type almanac struct {
	calendar policy.Calendar
	zone     *time.Location
	last     atomic.Pointer[stretch] // most decisions fall into the same window as the one before
}

// stretch is a span of time: from start on, before end.
type stretch struct{ start, end store.Instant }

// newAlmanac returns the almanac of a limit that has no Problem and defaults filled in; nil if all its windows have the
// same length.
func newAlmanac(l *policy.Limit) *almanac {
	if l.Calendar == "" {
		return nil
	}
	zone, err := policy.LoadZone(l.Timezone)
	if err != nil { // unlikely: Problems loaded it a moment ago
		zone = time.UTC
	}
	return &almanac{calendar: l.Calendar, zone: zone}
}

// window returns the window that contains at: from start on, before end. A window starts at the first instant at which
// the zone's clocks show its first day, even if they are turned back after that, or never show its midnight.
func (a *almanac) window(at store.Instant) (start, end store.Instant) {
	if last := a.last.Load(); last != nil && last.start <= at && at < last.end {
		return last.start, last.end
	}
	date := a.firstDay(at)
	found := stretch{a.startOf(date), a.startOf(a.next(date))}
	for at >= found.end { // clocks that were turned back over midnight show the day before again
		date = a.next(date)
		found = stretch{found.end, a.startOf(a.next(date))}
	}
	a.last.Store(&found)
	return found.start, found.end
}

// firstDay returns the first day of the window that contains at's date in the zone. It represents the day by its
// midnight in UTC.
func (a *almanac) firstDay(at store.Instant) time.Time {
	year, month, day := at.Time().In(a.zone).Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	switch a.calendar {
	case policy.CalendarWeek:
		sinceMonday := (int(date.Weekday()) + 6) % 7
		return date.AddDate(0, 0, -sinceMonday)
	case policy.CalendarMonth:
		return date.AddDate(0, 0, 1-day)
	}
	return date
}

// next returns the first day of the window after the one that starts on date.
func (a *almanac) next(date time.Time) time.Time {
	switch a.calendar {
	case policy.CalendarWeek:
		return date.AddDate(0, 0, 7)
	case policy.CalendarMonth:
		return date.AddDate(0, 1, 0)
	}
	return date.AddDate(0, 0, 1)
}

// startOf returns the first instant at which the zone's clocks show date or later. It walks through the periods between
// two changes of the zone's offset, beginning well before date. In each period, midnight of date is one instant, which
// may lie before the period begins or after it ends.
func (a *almanac) startOf(date time.Time) store.Instant {
	const wellBefore = 48 * time.Hour // no zone is a day from UTC
	for t := date.Add(-wellBefore).In(a.zone); ; {
		_, offset := t.Zone()
		midnight := date.Add(-time.Duration(offset) * time.Second)
		begins, ends := t.ZoneBounds()
		switch {
		case !ends.IsZero() && !midnight.Before(ends):
			t = ends
		case midnight.Before(begins):
			return store.InstantOf(begins)
		default:
			return store.InstantOf(midnight)
		}
	}
}
