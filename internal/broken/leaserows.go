package broken

const leaseRowsFile = "internal/limiter/leaserows.go"

// rowsAhead are builds that count rows of a log ahead another way than the proof needs.
func rowsAhead() []Build {
	return []Build{
		{
			Name: "rows ahead that are dated when they are counted", Broke: "no row leaves a window before its event does",
			Tests: []string{"TestRowsAheadLeaveNoSooner"},
			Edits: []Edit{{leaseRowsFile, `at := own.now.Add(p.ahead)`, `at := own.now`}},
		},
		{
			Name: "rows ahead that are handed out after their date", Broke: "no row leaves a window before its event does",
			Tests: []string{"TestRowsAheadAreNotHandedOutAfterTheirDate"},
			Edits: []Edit{{leasesFile, `return now.Add(p.ahead)`, `return now.Add(2 * p.ahead)`}},
		},
		{
			Name: "a row ahead that is handed out twice", Broke: "a lease is handed out once", Finds: 3000,
			Tests: []string{"TestRowsAheadSaveRequests"},
			Edits: []Edit{
				{leasesFile, "\th.left -= cost\n", "\tif h.rows == nil {\n\t\th.left -= cost\n\t}\n"},
				{leasesFile, "\th.rows = h.rows[min(1, len(h.rows)):]\n", "\n"},
			},
		},
		{
			Name: "rows ahead that do not fit", Broke: "units ahead are counted before they are handed out, and fit", Finds: 3000,
			Tests: []string{"TestRowsAheadThatDoNotFit"},
			Edits: []Edit{
				{leasesFile, `units = min(own.ahead, room+fades)`, `units = own.ahead`},
				{leasesFile, `h.target.plan.decide(d, &h.state, op, id, at, cost)`, `h.target.plan.decide(d, &h.state, OpRecord, id, at, cost)`},
			},
		},
		{
			Name: "rows ahead that stay", Broke: "what is left of a lease is given back",
			Tests: []string{"TestRowsAheadAreGivenBack", "TestRowsAheadAreNotHeldAgainstTheirOwner"},
			Edits: []Edit{{leaseRowsFile, "\tl.erase(t, ids)\n", "\n"}},
		},
		{
			Name: "rows ahead of a take that failed", Broke: "what is left of a lease is given back",
			Tests: []string{"TestRowsAheadOfATakeThatFailed"},
			Edits: []Edit{{countedFile, "\tc.leases.retract(t, own.rows)\n", "\n"}},
		},
		{
			Name: "own rows ahead as they are dated", Broke: "one instance decides as the algorithm",
			Tests: []string{"TestOneInstanceDecidesAsTheLog", "TestRowsAheadLeaveNoSooner"},
			Edits: []Edit{{leaseRowsFile, `if e.At = known[i].at; e.At == 0 {`, `if known[i].at == 0 {`}},
		},
		{
			Name: "own rows ahead that are left held against whoever asks", Broke: "one instance decides as the algorithm",
			Tests: []string{"TestRowsAheadAreNotHeldAgainstTheirOwner"},
			Edits: []Edit{{leaseRowsFile, `range l.left(t.key) {`, `range l.left(t.key)[:0] {`}},
		},
		{
			Name: "own rows ahead dated otherwise where some were not read", Broke: "all that counts is counted",
			Tests: []string{"TestRowsAmongMoreThanWasRead"},
			Edits: []Edit{{leaseRowsFile, `if len(log.Events) >= q.Logs[st.rule.log].Max || !slices`, `if !slices`}},
		},
		{
			Name: "a reset that forgets rows ahead by their dates", Broke: "a reset forgets what was counted before it, and nothing later",
			Tests: []string{"TestResetForgetsRowsAhead"},
			Edits: []Edit{{leaseRowsFile, `e.At.Add(-ahead) <= s.Reset`, `e.At.Add(0*ahead) <= s.Reset`}},
		},
		{
			Name: "rows ahead as of an instance that is alone", Broke: "who shares leaves some to others",
			Tests: []string{"TestRowsAheadLeaveSomeToOthers", "TestRowsAheadOfWhoIsNoLongerAlone", "TestRowsAheadLateInAPeriod"},
			Edits: []Edit{{allowancesFile, `s.inLog() && s.alone.Load() &&`, `s.inLog() &&`}},
		},
		{
			Name: "rows ahead of who comes seldom", Broke: "nothing is counted ahead that nobody will ask for",
			Tests: []string{"TestNoRowsAheadOfWhoComesSeldom"},
			Edits: []Edit{{leaseRowsFile, `return e.At > now.Add(-p.ahead)`, `return e.At > 0`}},
		},
		{
			Name: "rows ahead that expire with those of today", Broke: "a row lives as long as it counts",
			Tests: []string{"TestRowsAheadLiveLonger"},
			Edits: []Edit{{"internal/limiter/plan.go", `log.ttl(o) + p.ahead`, `log.ttl(o)`}},
		},
		{
			Name: "rows ahead of a take that is dated later than the clock", Broke: "a row lives as long as it counts",
			Tests: []string{"TestNoRowsAheadOfTakesThatAreDatedLater"},
			Edits: []Edit{{"internal/limiter/units.go", `if p.ahead > 0 && now > c.opts.now() {`, `if false && now > c.opts.now() {`}},
		},
		{
			Name: "rows ahead that an override leaves", Broke: "what is let through under an override counts afterwards",
			Tests: []string{"TestRowsAheadEndWithAnOverride"},
			Edits: []Edit{{"internal/limiter/override.go", "e.shared.counted.leases.end(c.Key, now)", "_ = now"}},
		},
		{
			Name: "notes that are gone before rows ahead are", Broke: "whoever makes an allowance finds every key that may be full beside it",
			Tests: []string{"TestNotesOutliveRowsAhead"},
			Edits: []Edit{{"internal/limiter/highkeys.go", "s.rule.slack + t.plan.ahead)", "s.rule.slack)"}},
		},
		{
			Name: "a full log that is written first", Broke: "nothing is written of a take that its log is known to be full for",
			Tests: []string{"TestFullLogIsReadBeforeItIsWritten"},
			Edits: []Edit{{countedFile, `fullUntil(&state, own.now); until > own.now {`, `fullUntil(&state, own.now); false && until > own.now {`}},
		},
		{
			Name: "a log that was full read first for ever", Broke: "a take asks the store once, unless it may be denied",
			Tests: []string{"TestFullLogIsWrittenFirstOnceThereIsRoom"},
			Edits: []Edit{{countedFile, `c.denied.put(t.key, until)`, `c.denied.put(t.key, Distant)`}},
		},
	}
}
