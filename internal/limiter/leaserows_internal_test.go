package limiter

import (
	"testing"
	"time"
)

// Where there may be more rows than were read, those ahead count as they are dated, whatever is
// known of them: what was not read may be what counts in their place.
func TestRowsAmongMoreThanWasRead(t *testing.T) {
	o := &Options{ClockTolerance: 100 * time.Millisecond}
	p := newPlan(Policy{
		Name: "p", Leases: LeasesStanding, Limits: []Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}},
	}, o, false)
	l, key, ids := &leases{opts: o, erase: func(*target, []EventID) {}}, &target{plan: p}, newEventIDs()
	now := Instant(1_000_000)
	var gone []EventID
	var state State
	state.Logs = make([]Log, 1)
	for i := range Instant(20) {
		e := Event{ID: ids.next(now + i), At: now + i, Cost: 1}
		if i >= 8 {
			e.ID = e.ID.ahead()
			gone = append(gone, e.ID)
		}
		state.Logs[0].Events = append(state.Logs[0].Events, e)
	}
	l.drop(key, gone)
	for most, want := range map[int]int{20: 20, 21: 8} {
		s := State{Logs: []Log{{Events: state.Logs[0].Events}}}
		l.redate(key, &s, &Query{Logs: []LogQuery{{Max: most}}}, false)
		if got := len(s.Logs[0].Events); got != want {
			t.Errorf("%d of 20 rows count, of which %d at most were asked for, want %d", got, most, want)
		}
	}
}
