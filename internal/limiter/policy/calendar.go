package policy

import (
	"errors"
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

// LoadZone returns the zone called name in the IANA database. The zone of the machine
// is refused: it would not be the same on every instance.
func LoadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New("the zone of the machine")
	}
	return time.LoadLocation(name)
}
