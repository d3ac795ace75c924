package limiter_test

import (
	"reflect"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // wherever the tests run

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var calendars = []policy.Calendar{policy.CalendarDay, policy.CalendarWeek, policy.CalendarMonth}

func byCalendar(calendar policy.Calendar, zone string) policy.Limit {
	return policy.Limit{Algorithm: "fixed-window", Limit: 3, Calendar: calendar, Timezone: zone}
}

// at returns the instant of a time in UTC.
func at(t testing.TB, text string) store.Instant {
	t.Helper()
	clock, err := time.Parse("2006-01-02 15:04:05.999", text)
	if err != nil {
		t.Fatal(err)
	}
	return store.InstantOf(clock)
}

// TestCalendarWindows has the first and the last millisecond of windows, in UTC.
func TestCalendarWindows(t *testing.T) {
	for _, test := range []struct {
		name     string
		calendar policy.Calendar
		zone     string
		first    string
		last     string
		lasts    time.Duration
	}{
		{"a day in UTC", "day", "UTC", "2026-03-29 00:00:00", "2026-03-29 23:59:59.999", 24 * time.Hour},
		{"no zone is UTC", "day", "", "2026-03-29 00:00:00", "2026-03-29 23:59:59.999", 24 * time.Hour},
		{"a day before the epoch", "day", "UTC", "1969-12-31 00:00:00", "1969-12-31 23:59:59.999", 24 * time.Hour},
		{"summer begins", "day", "Europe/Berlin", "2026-03-28 23:00:00", "2026-03-29 21:59:59.999", 23 * time.Hour},
		{"summer ends", "day", "Europe/Berlin", "2026-10-24 22:00:00", "2026-10-25 22:59:59.999", 25 * time.Hour},
		{"the day after", "day", "Europe/Berlin", "2026-10-25 23:00:00", "2026-10-26 22:59:59.999", 24 * time.Hour},
		{"far in the future", "day", "Europe/Berlin", "2126-07-03 22:00:00", "2126-07-04 21:59:59.999", 24 * time.Hour},
		{"half an hour from UTC", "day", "Asia/Kolkata", "2026-03-28 18:30:00", "2026-03-29 18:29:59.999", 24 * time.Hour},
		{"three quarters", "day", "Asia/Kathmandu", "2026-03-28 18:15:00", "2026-03-29 18:14:59.999", 24 * time.Hour},
		{"summer of half an hour ends", "day", "Australia/Lord_Howe", "2026-04-04 13:00:00", "2026-04-05 13:29:59.999", 1470 * time.Minute},
		{"and begins", "day", "Australia/Lord_Howe", "2026-10-03 13:30:00", "2026-10-04 12:59:59.999", 1410 * time.Minute},
		{"a day without midnight", "day", "America/Sao_Paulo", "2018-11-04 03:00:00", "2018-11-05 01:59:59.999", 23 * time.Hour},
		{"the day before it", "day", "America/Sao_Paulo", "2018-11-03 03:00:00", "2018-11-04 02:59:59.999", 24 * time.Hour},
		{"turned back at midnight", "day", "America/Sao_Paulo", "2018-02-17 02:00:00", "2018-02-18 02:59:59.999", 25 * time.Hour},
		{"no midnight in Beirut", "day", "Asia/Beirut", "2022-03-26 22:00:00", "2022-03-27 20:59:59.999", 23 * time.Hour},
		{"turned back at midnight in Beirut", "day", "Asia/Beirut", "2022-10-28 21:00:00", "2022-10-29 21:59:59.999", 25 * time.Hour},
		{"midnight twice", "day", "America/Havana", "2025-11-02 04:00:00", "2025-11-03 04:59:59.999", 25 * time.Hour},
		{"turned back past midnight", "day", "America/St_Johns", "2010-11-07 02:30:00", "2010-11-08 03:29:59.999", 25 * time.Hour},
		{"the day before a day that there was not", "day", "Pacific/Apia", "2011-12-29 10:00:00", "2011-12-30 09:59:59.999", 24 * time.Hour},
		{"the day after it", "day", "Pacific/Apia", "2011-12-30 10:00:00", "2011-12-31 09:59:59.999", 24 * time.Hour},
		{"a day that there was twice", "day", "Pacific/Kwajalein", "1969-09-29 13:00:00", "1969-10-01 11:59:59.999", 47 * time.Hour},

		{"a week begins on Monday", "week", "UTC", "2026-03-02 00:00:00", "2026-03-08 23:59:59.999", 7 * 24 * time.Hour},
		{"a week of two years", "week", "Europe/Berlin", "2026-12-27 23:00:00", "2027-01-03 22:59:59.999", 7 * 24 * time.Hour},
		{"summer begins in a week", "week", "Europe/Berlin", "2026-03-22 23:00:00", "2026-03-29 21:59:59.999", 7*24*time.Hour - time.Hour},
		{"the week in which it ends", "week", "Europe/Berlin", "2026-10-18 22:00:00", "2026-10-25 22:59:59.999", 7*24*time.Hour + time.Hour},
		{"a week of six days", "week", "Pacific/Apia", "2011-12-26 10:00:00", "2012-01-01 09:59:59.999", 6 * 24 * time.Hour},

		{"a month", "month", "UTC", "2026-11-01 00:00:00", "2026-11-30 23:59:59.999", 30 * 24 * time.Hour},
		{"a leap month", "month", "Asia/Kolkata", "2028-01-31 18:30:00", "2028-02-29 18:29:59.999", 29 * 24 * time.Hour},
		{"March", "month", "Europe/Berlin", "2026-02-28 23:00:00", "2026-03-31 21:59:59.999", 31*24*time.Hour - time.Hour},
		{"October", "month", "Europe/Berlin", "2026-09-30 22:00:00", "2026-10-31 22:59:59.999", 31*24*time.Hour + time.Hour},
		{"December of a year", "month", "America/New_York", "2026-12-01 05:00:00", "2027-01-01 04:59:59.999", 31 * 24 * time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := byCalendar(test.calendar, test.zone)
			first, last := at(t, test.first), at(t, test.last)
			for _, inside := range []store.Instant{first, first + 15*60*1000, first + (last-first)/2, last} {
				start, end := limiter.WindowAt(l)(inside)
				if start != first || end != last+1 || end.Sub(start) != test.lasts {
					t.Errorf("at %v: from %v to %v, %v, want %v to %v, %v",
						inside.Time(), start.Time(), end.Time(), end.Sub(start), first.Time(), (last + 1).Time(), test.lasts)
				}
				if c := limiter.CountOf(l, inside); c.Start != first || c.Expires != last+1 {
					t.Errorf("at %v: counted from %v, until %v", inside.Time(), c.Start.Time(), c.Expires.Time())
				}
			}
			if _, end := limiter.WindowAt(l)(first - 1); end != first {
				t.Errorf("the window before ends %v, want %v", end.Time(), first.Time())
			}
			if start, _ := limiter.WindowAt(l)(last + 1); start != last+1 {
				t.Errorf("the window after starts %v, want %v", start.Time(), (last + 1).Time())
			}
		})
	}
}

// TestCalendarWindowsMinuteByMinute compares the windows around every turn of some
// zones' clocks with what the clocks show: a window begins in the first minute in
// which they show its first day.
func TestCalendarWindowsMinuteByMinute(t *testing.T) {
	for _, zone := range []string{
		"Europe/Berlin", "America/New_York", "America/St_Johns", "America/Sao_Paulo", "America/Havana", "America/Scoresbysund",
		"Asia/Beirut", "Asia/Amman", "Asia/Tehran", "Africa/Cairo", "Antarctica/Troll", "Australia/Lord_Howe", "Pacific/Apia",
	} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			location, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			until := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			for turn := time.Date(2008, 1, 1, 0, 0, 0, 0, location); ; {
				_, turn = turn.ZoneBounds()
				if turn.IsZero() || turn.After(until) {
					return
				}
				for _, calendar := range calendars {
					compareWithClocks(t, byCalendar(calendar, zone), turn)
				}
			}
		})
	}
}

// compareWithClocks compares the windows of l in the days around turn with what the
// clocks of turn's zone show.
func compareWithClocks(t *testing.T, l policy.Limit, turn time.Time) {
	t.Helper()
	window := limiter.WindowAt(l)
	latest, begun := 0, store.Instant(0)
	for clock := turn.Add(-26 * time.Hour); clock.Before(turn.Add(50 * time.Hour)); clock = clock.Add(time.Minute) {
		now := store.InstantOf(clock)
		if shows := firstDayOf(l.Calendar, clock); shows > latest { // once begun, a window is not left for an earlier one
			if latest != 0 {
				begun = now
			}
			latest = shows
		}
		start, end := window(now)
		if begun != 0 && start != begun || start > now || end <= now {
			t.Fatalf("%s in %s: at %v the window is from %v to %v, and began %v",
				l.Calendar, l.Timezone, clock, start.Time().In(clock.Location()), end.Time().In(clock.Location()), begun.Time())
		}
		if lasts := end.Sub(start); lasts > limiter.Longest(policy.Policy{Limits: []policy.Limit{l}}) {
			t.Fatalf("%s in %s: at %v the window is %v long", l.Calendar, l.Timezone, clock, lasts)
		}
	}
}

// firstDayOf returns the first day of the calendar's window that clock shows, counted
// in days.
func firstDayOf(calendar policy.Calendar, clock time.Time) int {
	year, month, day := clock.Date()
	if calendar == policy.CalendarMonth {
		day = 1
	}
	const fromMonday = 4 // the epoch was a Thursday
	days := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / (24 * 3600))
	if calendar == policy.CalendarWeek {
		days -= (days - fromMonday) % 7
	}
	return days
}

// TestCalendarWindowsOfOneAlmanac asks one almanac for windows back and forth.
func TestCalendarWindowsOfOneAlmanac(t *testing.T) {
	window := limiter.WindowAt(byCalendar("day", "Europe/Berlin"))
	for range 2 {
		for _, test := range []struct{ at, start, end string }{
			{"2026-10-24 21:59:59.999", "2026-10-23 22:00:00", "2026-10-24 22:00:00"},
			{"2026-10-24 22:00:00", "2026-10-24 22:00:00", "2026-10-25 23:00:00"},
			{"2026-10-25 22:59:59.999", "2026-10-24 22:00:00", "2026-10-25 23:00:00"},
			{"2026-10-25 23:00:00", "2026-10-25 23:00:00", "2026-10-26 23:00:00"},
		} {
			if start, end := window(at(t, test.at)); start != at(t, test.start) || end != at(t, test.end) {
				t.Errorf("%s: from %v to %v, want %s to %s", test.at, start.Time(), end.Time(), test.start, test.end)
			}
		}
	}
}

func TestQuotaOfADay(t *testing.T) {
	m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{byCalendar("day", "Europe/Berlin")}})
	for _, step := range []struct {
		at      string
		cost    int64
		allowed bool
		used    int64
		retry   time.Duration
	}{
		{"2026-10-24 21:59:59.999", 3, true, 3, 0},
		{"2026-10-24 22:00:00", 2, true, 2, 0},
		{"2026-10-25 00:30:00", 2, false, 2, 22*time.Hour + 30*time.Minute}, // 02:30, for the first time
		{"2026-10-25 01:30:00", 1, true, 3, 0},                              // and for the second
		{"2026-10-25 22:59:59.999", 1, false, 3, time.Millisecond},
		{"2026-10-25 23:00:00", 3, true, 3, 0},
		{"2026-10-25 22:00:00", 1, false, 6, 25 * time.Hour}, // a clock that stepped back
	} {
		got := m.Do(count.OpTake, at(t, step.at), step.cost)
		if got.Allowed != step.allowed || got.Used != step.used || got.RetryAfter != step.retry {
			t.Errorf("%s: allowed %v, used %d, retry after %v, want %v, %d, %v",
				step.at, got.Allowed, got.Used, got.RetryAfter, step.allowed, step.used, step.retry)
		}
	}
}

func TestCalendarLimitsAreToldApart(t *testing.T) {
	fixed := policy.Limit{Name: "n", Algorithm: "fixed-window", Limit: 1, Window: 24 * time.Hour}
	if got := fixed.ID(); got != "n/fixed-window/86400000" {
		t.Errorf("%q is another limit than before", got)
	}
	ids := map[policy.LimitID]bool{fixed.ID(): true}
	for _, calendar := range calendars {
		for _, zone := range []string{"UTC", "Europe/Berlin"} {
			l := byCalendar(calendar, zone)
			l.Name = "n"
			ids[l.ID()] = true
			if l.ID() != l.WithDefaults().ID() {
				t.Errorf("%q is %q with its defaults", l.ID(), l.WithDefaults().ID())
			}
		}
	}
	if len(ids) != 7 {
		t.Errorf("%d of 7 limits are told apart: %v", len(ids), ids)
	}
	if got := byCalendar("day", "").ID(); got != byCalendar("day", "UTC").ID() {
		t.Errorf("no zone is %q, not UTC", got)
	}
}

func TestCalendarDefaults(t *testing.T) {
	got := byCalendar("week", "").WithDefaults()
	if got.Name != "fixed-window-week" || got.Timezone != "UTC" || got.Window != 7*24*time.Hour {
		t.Errorf("%+v", got)
	}
	if again := got.WithDefaults(); !reflect.DeepEqual(again, got) {
		t.Errorf("%+v, filled in again: %+v", got, again)
	}
	for calendar, want := range map[policy.Calendar]time.Duration{
		"": time.Hour, "day": 49 * time.Hour, "week": 8*24*time.Hour + time.Hour, "month": 32*24*time.Hour + time.Hour,
	} {
		p := policy.Policy{Name: "p", Limits: []policy.Limit{byCalendar(calendar, "")}}
		if calendar == "" {
			p.Limits[0].Window = time.Hour
		}
		if lasts := limiter.Longest(p); lasts != want || limiter.ResetTTL(p) < 2*lasts {
			t.Errorf("%s: up to %v, and a reset is remembered for %v", calendar, lasts, limiter.ResetTTL(p))
		}
	}
}

func TestCalendarProblems(t *testing.T) {
	daily := func(change func(*policy.Limit)) policy.Limit {
		l := byCalendar("day", "Europe/Berlin")
		change(&l)
		return l
	}
	for _, test := range []struct {
		name  string
		limit policy.Limit
		want  string // how the only problem starts; empty: none
	}{
		{"a day in Berlin", daily(func(*policy.Limit) {}), ""},
		{"its length as well", daily(func(l *policy.Limit) { l.Window = 24 * time.Hour }), ""},
		{"another length", daily(func(l *policy.Limit) { l.Window = time.Hour }), "limits[0].window: 1h is not a day: leave it out"},
		{"a year", daily(func(l *policy.Limit) { l.Calendar = "year" }), `limits[0].window: "year" is not a calendar: use day, week or month`},
		{"a zone there is not", daily(func(l *policy.Limit) { l.Timezone = "Berlin" }),
			`limits[0].timezone: "Berlin" is not a time zone: use a name of the IANA database such as Europe/Berlin, or UTC`},
		{"the machine's zone", daily(func(l *policy.Limit) { l.Timezone = "Local" }), `limits[0].timezone: "Local" is not a time zone`},
		{"a path", daily(func(l *policy.Limit) { l.Timezone = "../zoneinfo/UTC" }), `limits[0].timezone: "../zoneinfo/UTC" is not a time zone`},
		{"a zone of a duration", policy.Limit{Algorithm: "fixed-window", Limit: 1, Window: 24 * time.Hour, Timezone: "Europe/Berlin"},
			"limits[0].timezone: a window of 1d starts everywhere at once"},
		{"a log", daily(func(l *policy.Limit) { l.Algorithm = "sliding-log" }),
			"limits[0].window: a sliding-log counts over one length of time, and calendar days differ in length: " +
				"use a fixed-window, or a duration such as 1d"},
		{"a tail", daily(func(l *policy.Limit) { l.Algorithm = "sliding-tail" }), "limits[0].window: a sliding-tail counts over"},
		{"buckets", daily(func(l *policy.Limit) { l.Algorithm = "sliding-window" }), "limits[0].window: a sliding-window counts over"},
		{"a leaky bucket", daily(func(l *policy.Limit) { l.Algorithm = "leaky-bucket" }), "limits[0].window: a leaky-bucket counts over"},
		{"a token bucket", daily(func(l *policy.Limit) { l.Algorithm = "token-bucket" }), "limits[0].window: a token-bucket counts over"},
	} {
		found := policy.Policy{Name: "p", Limits: []policy.Limit{test.limit}}.Problems()
		if ok := len(found) == 0; test.want == "" != ok || !ok && (len(found) != 1 || !strings.HasPrefix(found[0].Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, found, test.want)
		}
	}
}

// BenchmarkCalendar measures one judgement by a window of the calendar, of the same
// day as the one before or of another.
func BenchmarkCalendar(b *testing.B) {
	for _, days := range []int64{1, 2} {
		b.Run(map[int64]string{1: "same", 2: "another"}[days], func(b *testing.B) {
			m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{byCalendar("day", "Europe/Berlin")}})
			m.Do(count.OpRecord, someMorning, 1)
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i++ {
				m.Do(count.OpCheck, someMorning+store.Instant(i%days*24*3600*1000), 1)
			}
		})
	}
}
