package policy

import (
	"errors"
	"time"
)

// Calendar is the calendar unit of windows that follow a calendar in a time zone. The zero Calendar means that all windows
// have the same length.
type Calendar string

// The values of Calendar.
const (
	CalendarDay   Calendar = "day"   // from midnight
	CalendarWeek  Calendar = "week"  // from Monday, as in ISO 8601
	CalendarMonth Calendar = "month" // from the first
)

// Length returns the nominal length of a window of c, which is 31 days for a month; 0 if c is not a calendar. In a zone
// that changes its offset a window can be shorter, or longer by up to turnedBack.
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
	// defaultZone is the time zone of calendars without one.
	defaultZone = "UTC"
	// turnedBack is longer than any zone sets its clocks back within a window: by an hour when summer time ends, and by a day
	// when the zone moves to the other side of the date line.
	turnedBack = 25 * time.Hour
)

// LoadZone returns the zone called name in the IANA database. It refuses the machine's zone, which could differ between
// instances.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the zone of the machine")
	}
	return time.LoadLocation(name)
}
