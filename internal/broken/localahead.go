package broken

const localStandingFile = "internal/limiter/localstanding.go"

// inMemoryAhead are those whose allowances are counted in memory.
func inMemoryAhead() []Build {
	const (
		bound  = "beyond the limit in memory no more than the bound"
		refund = "a refund of what was counted in memory gives back once"
	)
	return []Build{
		{
			Name: "local: others' allowances not counted", Broke: bound,
			Tests: []string{"TestLocalStandingCountsOthersAllowances", "TestLocalStandingInCallsOfSeveral"},
			Edits: []Edit{{localStandingFile, `		st.addOthers(s)`, ``}},
		},
		{
			Name: "local: others' allowances not counted in calls of several demands", Broke: bound,
			Tests: []string{"TestLocalStandingInCallsOfSeveral"},
			Edits: []Edit{{"internal/limiter/exclusivecall.go", `		c.exclusive.addBeside(ch, s, c.now)`, ``}},
		},
		{
			Name: "local: an allowance used before others have read of it", Broke: bound,
			Tests: []string{"TestLocalStandingWaitsUntilOthersKnow"},
			Edits: []Edit{{localStandingFile, `own.isKnown(b.opts, now) && `, ``}},
		},
		{
			Name: "local: others' allowances forgotten beside an override", Broke: bound,
			Tests: []string{"TestLocalStandingUnderAnOverride"},
			Edits: []Edit{{localStandingFile, `at(st.whole(), now)`, `at(st, now)`}},
		},
		{
			Name: "local: what was never written taken for removed", Broke: "what was counted in memory counts until its window is over",
			Tests: []string{"TestLocalStandingRefundsWhatWasWritten"},
			Edits: []Edit{{localSyncFile, ` && !e.ID.isAhead()`, ``}},
		},
		{
			Name: "local: a refund of what was never written is written", Broke: refund,
			Tests: []string{"TestLocalStandingRefunds"},
			Edits: []Edit{{"internal/limiter/localrefund.go", `	case n.id.isAhead() && own: // it was never written`, `	case false:`}},
		},
		{
			Name: "local: given back as often as it is told", Broke: refund,
			Tests: []string{"TestLocalStandingRefunds"},
			Edits: []Edit{{localStandingFile, `w.Put, w.Tally, w.Span = []Tally{{Count: less, Stamp: 1}}, true, p.span`, `w.Add = []Count{less}`}},
		},
	}
}
