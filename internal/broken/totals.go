package broken

const (
	talliesFile = "internal/limiter/tallies.go"
	leasesFile  = "internal/limiter/leases.go"
)

// totals are builds that keep running totals and leases another way than the proof needs.
func totals() []Build {
	return []Build{
		{
			Name: "a total lowered twice", Broke: "a total is never lowered below what was admitted",
			Tests: []string{"TestTotalIsNotLoweredTwice"},
			Edits: []Edit{{countedFile, `p.tally && counts == RecordedUnknown:`, `p.tally:`}},
		},
		{
			Name: "a total begun anew in its row", Broke: "a total replaces an earlier one only", Vital: true, Finds: 1500,
			Tests: []string{"TestTotalsSurviveAClockThatGoesBack"},
			Edits: []Edit{{
				talliesFile, `total.Row, total.Units = t.ids.next(InstantOf(now)), 0`, `total.Row, total.Units = EventID{1}, 0`,
			}},
		},
		{
			Name: "a total stamped by the clock alone", Broke: "a total replaces an earlier one only",
			Tests: []string{"TestTotalsAreTakenBackAtOnce"},
			Edits: []Edit{{talliesFile, `max(t.stamp+1, now.UnixMicro())`, `now.UnixMicro()`}},
		},
		{
			Name: "totals that live from now on", Broke: "totals live long enough, whatever the clock",
			Tests: []string{"TestTotalsLiveLongEnough"},
			Edits: []Edit{{talliesFile, `total.Expires.Sub(total.Start)+`, `max(0, total.Expires.Sub(InstantOf(o.Now())))+`}},
		},
		{
			Name: "a refused total kept", Broke: "denied: nothing stays counted", Finds: 1500,
			Tests: []string{"TestTotalsAreTakenBackAtOnce"},
			Edits: []Edit{{countedFile, `w.Add = negated(refused.counts)`, `_ = refused`}},
		},
		{
			Name: "a total missing from its read accepted", Broke: "own units are among what was read",
			Tests: []string{"TestTotalThatIsNotReadAdmitsNothing"},
			Edits: []Edit{{"internal/limiter/units.go", `seen = state.replace(own.totals[i])`, `seen = state.replace(own.totals[i]) || true`}},
		},
		{
			Name: "a lease of the window before", Broke: "a lease ends with its windows",
			Tests: []string{"TestLeaseEndsWithItsWindow"},
			Edits: []Edit{{leasesFile, `held.left < cost || now >= held.until`, `held.left < cost`}},
		},
		{
			Name: "a lease spent twice", Broke: "a lease is handed out once", Vital: true, Finds: 1500,
			Tests: []string{"TestLeasesOfTwoInstances"},
			Edits: []Edit{{leasesFile, "\theld.left -= cost\n", "\n"}},
		},
		{
			Name: "a lease that outlives a reset", Broke: "a reset ends leases", Tests: []string{"TestResetEndsLeases"},
			Edits: []Edit{{"internal/limiter/news.go", `e.shared.counted.leases.forget(c.Key)`, `_ = c.Key`}},
		},
		{
			Name: "a lease of what a reset forgot", Broke: "a reset ends leases", Tests: []string{"TestResetWhileALeaseIsMade"},
			Edits: []Edit{{leasesFile, `l.mark(t.key) != own.mark || `, ``}},
		},
		{
			Name: "more ahead than there is room", Broke: "units ahead are counted before they are handed out", Finds: 1500,
			Tests: []string{"TestLeaseIsNoMoreThanTheRoom"},
			Edits: []Edit{{leasesFile, `units = min(own.ahead, room)`, `units = own.ahead`}},
		},
		{
			Name: "an early lease of a full key", Broke: "nothing is counted ahead at the end of a limit",
			Tests: []string{"TestNoEarlyLeaseOfAFullKey"},
			Edits: []Edit{{leasesFile, `own.taken == 0 && room < bounds.least`, `room < 0*bounds.least`}},
		},
		{
			Name: "added without what was left", Broke: "units ahead are counted before they are handed out", Finds: 1500,
			Tests: []string{"TestLeasesUnderManyCallers"},
			Edits: []Edit{{"internal/limiter/units.go", `u.counts[0].Units-u.had)`, `sumOf(u.batch)-u.had)`}},
		},
	}
}
