package store

import "slices"

// Redate dates e as of now, if it is dated later. A hold lasts as long as it would have.
func (e *Event) Redate(now Instant) {
	if e.At <= now {
		return
	}
	if e.Ends != 0 {
		e.Ends -= e.At - now
	}
	e.At = now
}

// Redate dates events that are later than now as of now. It never changes what is in Events
// already.
func (l *Log) Redate(now Instant) {
	n := len(l.After(now).Events)
	if n == 0 {
		return
	}
	l.Events = slices.Clone(l.Events)
	for i := len(l.Events) - n; i < len(l.Events); i++ {
		l.Events[i].Redate(now)
	}
}
