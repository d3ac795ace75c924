package broken

const talliesFile = "internal/limiter/totals/tallies.go"

// totals are builds that keep running totals another way than the proof needs.
func totals() []Build {
	return []Build{
		{
			Name: "totals forgotten by a clock that is wrong", Broke: "what may not be stored is not taken back in another row",
			Tests: []string{"TestUnknownUnitWhileTheClockIsWrong"},
			Edits: []Edit{{talliesFile, `if !o.IsSkewed() {`, `if o != nil {`}},
		},
		{
			Name: "a total lowered twice", Broke: "a total is never lowered below what was admitted",
			Tests: []string{"TestTotalIsNotLoweredTwice"},
			Edits: []Edit{{countedFile, `p.Tally && counts == count.RecordedUnknown {`, `p.Tally {`}},
		},
		{
			Name: "a total lowered for a read that failed", Broke: "a total is never lowered below what was admitted",
			Tests: []string{"TestTotalOfAFailedReadIsTakenBackOnce"},
			Edits: []Edit{{talliesFile, `&put, q); !wrote {`, `&put, q); err != nil {`}},
		},
		{
			Name: "a total begun anew in its row", Broke: "a total replaces an earlier one only", Vital: true, Finds: 1500,
			Tests: []string{"TestTotalsSurviveAClockThatGoesBack"},
			Edits: []Edit{{
				talliesFile, `total.Row, total.Units = t.ids.Next(store.InstantOf(now)), 0`, `total.Row, total.Units = store.EventID{1}, 0`,
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
			Edits: []Edit{{talliesFile, `total.Expires.Sub(min(total.Start, now))`, `max(0, total.Expires.Sub(now))`}},
		},
		{
			Name: "totals of the next window that live from its start", Broke: "totals live long enough, whatever the clock",
			Tests: []string{"TestTotalsOfTheNextWindowLiveLongEnough"},
			Edits: []Edit{{talliesFile, `min(total.Start, now)`, `total.Start`}},
		},
		{
			Name: "a refused total kept", Broke: "denied: nothing stays counted", Finds: 1500,
			Tests: []string{"TestTotalsAreTakenBackAtOnce"},
			Edits: []Edit{{countedFile, `w.Add = totals.Negated(refused.counts)`, `w.Add = totals.Negated(nil)`}},
		},
		{
			Name: "a total missing from its read accepted", Broke: "own units are among what was read",
			Tests: []string{"TestTotalThatIsNotReadAdmitsNothing"},
			Edits: []Edit{{unitsFile, `seen = state.Replace(own.totals[i])`, `seen = state.Replace(own.totals[i]) || true`}},
		},
	}
}
