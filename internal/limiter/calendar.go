package limiter

import (
	"errors"
	"sync/atomic"
	"time"
)

// Calendar is what a window goes by when it goes by the calendar of a time zone. The
// zero Calendar is none: all windows are of one length.
type Calendar string

// The values of Calendar.
const (
	CalendarDay   Calendar = "day"   // from midnight
	CalendarWeek  Calendar = "week"  // from Monday, as in ISO 8601
	CalendarMonth Calendar = "month" // from the first
)

// Length returns how long a window of c is by name: that of a month without its like,
// 31 days; 0 for what is no calendar. In a zone that turns its clocks a window can be
// shorter, or longer by up to turnedBack.
func (c Calendar) Length() time.Duration {
	const day = 24 * time.Hour
	switch c {
	case CalendarDay:
		return day
	case CalendarWeek:
		return 7 * day
	case CalendarMonth:
		return 31 * day
	}
	return 0
}

const (
	// defaultZone is the time zone of calendars that give none.
	defaultZone = "UTC"
	// turnedBack is more than what any zone turns its clocks back by within a window: an
	// hour when summer ends, and a day when it moves to the other side of the date line.
	turnedBack = 25 * time.Hour
)

// loadZone returns the zone called name in the IANA database. The zone of the machine
// is refused: it would not be the same on every instance.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the zone of the machine")
	}
	return time.LoadLocation(name)
}

// almanac knows when the windows of a calendar start in a time zone. It is safe for
// concurrent use.
type almanac struct {
	calendar Calendar
	zone     *time.Location
	last     atomic.Pointer[stretch] // most decisions fall into the same window as the one before
}

// stretch is some time: from start on, before end.
type stretch struct{ start, end Instant }

// newAlmanac returns the almanac of a limit that has no Problem and defaults filled
// in; nil if its windows are all of one length.
func newAlmanac(l *Limit) *almanac {
	if l.Calendar == "" {
		return nil
	}
	zone, err := loadZone(l.Timezone)
	if err != nil { // it was there a moment ago, when Problems looked
		zone = time.UTC
	}
	return &almanac{calendar: l.Calendar, zone: zone}
}

// window returns the window that holds at: from start on, before end. A window starts
// at the first instant at which the zone's clocks show its first day, whether or not
// they are turned back after that, or never show its midnight.
func (a *almanac) window(at Instant) (start, end Instant) {
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

// firstDay returns the first day of the window that at falls into by its date: a
// midnight in UTC that stands for the date.
func (a *almanac) firstDay(at Instant) time.Time {
	year, month, day := at.Time().In(a.zone).Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	switch a.calendar {
	case CalendarWeek:
		sinceMonday := (int(date.Weekday()) + 6) % 7
		return date.AddDate(0, 0, -sinceMonday)
	case CalendarMonth:
		return date.AddDate(0, 0, 1-day)
	}
	return date
}

// next returns the first day of the window after the one that starts on date.
func (a *almanac) next(date time.Time) time.Time {
	switch a.calendar {
	case CalendarWeek:
		return date.AddDate(0, 0, 7)
	case CalendarMonth:
		return date.AddDate(0, 1, 0)
	}
	return date.AddDate(0, 0, 1)
}

// startOf returns the first instant at which clocks show date or later. It goes through
// the times between two turns of the clocks, from well before on: in each, clocks show
// midnight at one instant, which may be before it begins or after it ends.
func (a *almanac) startOf(date time.Time) Instant {
	const wellBefore = 48 * time.Hour // no zone is a day from UTC
	for t := date.Add(-wellBefore).In(a.zone); ; {
		_, offset := t.Zone()
		midnight := date.Add(-time.Duration(offset) * time.Second)
		begins, ends := t.ZoneBounds()
		switch {
		case !ends.IsZero() && !midnight.Before(ends):
			t = ends
		case midnight.Before(begins):
			return InstantOf(begins)
		default:
			return InstantOf(midnight)
		}
	}
}
