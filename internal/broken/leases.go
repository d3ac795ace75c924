package broken

const (
	leasesFile     = "internal/limiter/leases.go"
	carryFile      = "internal/limiter/carry.go"
	standingFile   = "internal/limiter/standing.go"
	highKeysFile   = "internal/limiter/highkeys.go"
	allowancesFile = "internal/limiter/allowances.go"
	spentFile      = "internal/limiter/spent.go"

	standingLogFile = "internal/limiter/standinglog.go"
)

// leases are builds that count units ahead another way than the proof needs.
func leases() []Build {
	return []Build{
		{
			Name: "a lease of the window before", Broke: "a lease ends with its windows",
			Tests: []string{"TestLeaseEndsWithItsWindow"},
			Edits: []Edit{{leasesFile, ` || now >= held.ends || l`, ` || l`}},
		},
		{
			Name: "a lease by a clock that was set back", Broke: "what a clock made that was ahead is not gone by once it is right",
			Tests: []string{"TestLeaseByAClockThatWasSetBack"},
			Edits: []Edit{{leasesFile, ` || l.opts.isSetBack(held.made, now) {`, ` {`}},
		},
		{
			Name: "an allowance by a clock that was set back", Broke: "what a clock made that was ahead is not gone by once it is right",
			Tests: []string{"TestAllowanceByAClockThatWasSetBack"},
			Edits: []Edit{{allowancesFile, "\t\tof.endAhead(s, now)\n", "\n"}},
		},
		{
			Name: "a lease spent twice", Broke: "a lease is handed out once", Finds: 1500,
			Tests: []string{"TestLeasesOfTwoInstances"},
			Edits: []Edit{{leasesFile, "\th.left -= cost\n", "\n"}},
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
			Name: "a lease with each request that fails", Broke: "one lease at most is lost until the store answers",
			Tests: []string{"TestLeaseThatIsLostIsNotFollowedByAnother"},
			Edits: []Edit{{countedFile, "\t\tc.leases.doubt(t, own)\n", "\n"}},
		},
		{
			Name: "more ahead than there is room", Broke: "units ahead are counted before they are handed out", Finds: 1500,
			Tests: []string{"TestLeaseIsNoMoreThanTheRoom"},
			Edits: []Edit{
				{leasesFile, `units = min(own.ahead, room+fades)`, `units = own.ahead`},
				{leasesFile, `h.target.plan.decide(d, &h.state, op, id, at, cost)`, `h.target.plan.decide(d, &h.state, OpRecord, id, at, cost)`},
			},
		},
		{
			Name: "an early lease of a full key", Broke: "nothing that does not fade is counted ahead at the end of a limit",
			Tests: []string{"TestNoEarlyLeaseOfAFullKey"},
			Edits: []Edit{{leasesFile, `own.taken == 0 && room < least`, `room < 0*least`}},
		},
		{
			Name: "a lease handed out in two windows", Broke: "what goes on in the next window is not handed out before",
			Tests: []string{"TestLeaseThatIsSpentGoesOn", "TestOthersCountWhatGoesOn"},
			Edits: []Edit{{carryFile, "\th.left -= units\n", "\n"}},
		},
		{
			Name: "a lease that goes on uncounted", Broke: "units ahead are counted before they are handed out", Finds: 1500,
			Tests: []string{"TestLeaseThatIsSpentGoesOn"},
			Edits: []Edit{{carryFile, `l.store.Write(ctx, &w)`, `l.store.Write(ctx, &Write{Key: w.Key})`}},
		},
		{
			Name: "a lease that goes on too late", Broke: "what goes on is counted before the next window begins by any clock",
			Tests: []string{"TestWhatIsTooLateDoesNotGoOn"},
			Edits: []Edit{{carryFile, `err == nil && l.inTime(held) && `, `err == nil && `}},
		},
		{
			Name: "a lease that goes on by a wrong clock", Broke: "what goes on is counted before the next window begins by any clock",
			Tests: []string{"TestNothingGoesOnByAClockThatIsWrong"},
			Edits: []Edit{
				{leasesFile, `now, err := l.opts.instant(); err == nil`, `now := InstantOf(l.opts.Now()); now > 0`},
				{carryFile, `now, err := l.opts.instant()`, `now, err := InstantOf(l.opts.Now()), error(nil)`},
			},
		},
		{
			Name: "a lease that goes on after a reset", Broke: "a reset ends leases",
			Tests: []string{"TestResetThatIsReadForgetsWhatGoesOn"},
			Edits: []Edit{{leasesFile, ` && own.next[0].Epoch == own.epoch`, ``}},
		},
		{
			Name: "added without what was left", Broke: "units ahead are counted before they are handed out", Finds: 1500,
			Tests: []string{"TestLeasesUnderManyCallers"},
			Edits: []Edit{{"internal/limiter/units.go", `u.counts[0].Units-u.had)`, `sumOf(u.batch)-u.had)`}},
		},
		{
			Name: "an allowance spent twice", Broke: "an allowance is handed out once", Finds: 1500,
			Tests: []string{"TestStandingLeasesAskNobody"},
			Edits: []Edit{{spentFile, `before+cost > most`, `cost > most`}},
		},
		{
			Name: "a high key that others don't learn of", Broke: "who finds half of a limit used says so first", Finds: 1500,
			Tests: []string{"TestHighKeysKnowAllowances", "TestHighKeyThatCannotBeNoted"},
			Edits: []Edit{{
				highKeysFile, `c.standings.put(ctx, s, s.high[i], put, c.opts.Now().UnixMicro()); err`, `error(nil); put.Units+int64(i) < 0 || err`,
			}},
		},
		{
			Name: "allowances not counted", Broke: "allowances count against a high key", Finds: 1500,
			Tests: []string{"TestHighKeysKnowAllowances"},
			Edits: []Edit{{
				standingFile, "\t\tstate.addUnder(noted.allowances)\n\tdefault:\n\t\ts.addSpent(t.key, state, own.now)\n",
				"\tdefault:\n\t\ts.addSpent(t.key, state, own.now)\n",
			}},
		},
		{
			Name: "allowances counted where a key is full", Broke: "allowances count from half of a limit on", Finds: 1500,
			Tests: []string{"TestHighKeysKnowAllowances"},
			Edits: []Edit{{standingFile, `>= r.capacity/highPart`, `>= r.capacity`}},
		},
		{
			Name: "an allowance of high keys", Broke: "an allowance is not for high keys", Finds: 1500,
			Tests: []string{"TestHighKeysKnowAllowances"},
			Edits: []Edit{{standingFile, `a.high[t.key]; high || c`, `a.high[t.key]; high && false || c`}},
		},
		{
			Name: "an allowance of keys that were high before", Broke: "an allowance is not for high keys", Finds: 1500,
			Tests: []string{"TestAllowanceIsNotForWhoFilledTheWindowBefore"},
			Edits: []Edit{{highKeysFile, `until := end.Add(end.Sub(start) + s.rule.slack + t.plan.ahead)`, `until := end.Add(0 * t.plan.ahead)`}},
		},
		{
			Name: "high keys noted once for all windows", Broke: "who finds half of a limit used says so first",
			Tests: []string{"TestHighKeysAreNotedInEachWindow"},
			Edits: []Edit{{highKeysFile, `return noted, ok && noted.start == start`, `return noted, ok`}},
		},
		{
			Name: "an allowance that is ended and spent", Broke: "what is left of an allowance is not spent once it was taken for unspent",
			Tests: []string{"TestAllowanceThatIsEndedIsNotSpent"},
			Edits: []Edit{{highKeysFile, `a.spent.end(key)`, `a.spent.of(key)`}},
		},
		{
			Name: "a lease of a high key that goes on", Broke: "who finds half of a limit used says so first",
			Tests: []string{"TestLeaseOfAHighKeyDoesNotGoOn"},
			Edits: []Edit{{carryFile, ` || h.high || `, ` || `}},
		},
		{
			Name: "allowances not counted under an override", Broke: "allowances count against a high key",
			Tests: []string{"TestAllowancesAndOverrides"},
			Edits: []Edit{{"internal/limiter/overrides.go", `made.standing.wary = true`, `made.standing.wary = false`}},
		},
		{
			Name: "an allowance made twice", Broke: "an allowance is handed out once",
			Tests: []string{"TestAllowanceIsNotMadeTwice"},
			Edits: []Edit{{allowancesFile, ` || start <= s.ended {`, ` {`}},
		},
		{
			Name: "high keys read before the allowance is stored", Broke: "who stores an allowance reads what is high after that",
			Tests: []string{"TestKeyThatGetsHighWhileAnAllowanceIsMade"},
			Edits: []Edit{
				{
					allowancesFile, "\tif units, found, err = of.settle(ctx, s, start, units); err != nil {\n",
					"\thigh, _ := of.highKeys(ctx, s, start)\n\tif units, found, err = of.settle(ctx, s, start, units); err != nil {\n",
				},
				{allowancesFile, "\thigh, err := of.highKeys(ctx, s, start)\n", ""},
			},
		},
		{
			Name: "allowances read before a key is noted", Broke: "who notes a high key reads allowances after that",
			Tests: []string{"TestKeyThatGetsHighWhileAnAllowanceIsMade"},
			Edits: []Edit{
				{
					highKeysFile, "\tfor i, key := range keys {\n",
					"\tfound, err := c.standings.read(ctx, s, s.allowances, now)\n\tfor i, key := range keys {\n",
				},
				{highKeysFile, "\tfound, err := c.standings.read(ctx, s, s.allowances, now)\n\tif err != nil {\n", "\tif err != nil {\n"},
			},
		},
		{
			Name: "allowances without a bound", Broke: "all allowances of a window are a fourth of the limit at most",
			Tests: []string{"TestAllowancesTogetherAreBounded", "TestAllowancesOfALogThatMeet"},
			Edits: []Edit{{allowancesFile, `if err != nil || unitsIn(found, start) <= s.most() {`, `if true {`}},
		},
		{
			Name: "allowances of a log rounded up where that does not fit", Broke: "allowances of two windows fit beside a key that is not high",
			Tests: []string{"TestAllowancesOfTwoPeriodsFitBesideALowKey"},
			Edits: []Edit{{allowancesFile, `return (limit - (limit/highPart - 1)) / 2`, `return (limit-(limit/highPart-1))/2 + 1`}},
		},
	}
}

// allowancesOfLogs are builds that count events of a log ahead another way than the proof
// needs.
func allowancesOfLogs() []Build {
	return []Build{
		{
			Name: "an event of a log's allowance handed out twice", Broke: "an allowance is handed out once", Finds: 4500,
			Tests: []string{"TestHanded"},
			Edits: []Edit{{"internal/limiter/handed.go", `if sum > most {`, `if cost > most {`}},
		},
		{
			Name: "allowances of a log not counted", Broke: "allowances count against a high key", Finds: 1500,
			Tests: []string{"TestHighKeysOfALogKnowAllowances"},
			Edits: []Edit{{standingLogFile, `range noted.allowances {`, `range noted.allowances[:0] {`}},
		},
		{
			Name: "events of a log's own allowance not counted", Broke: "what was handed out counts", Finds: 1500,
			Tests: []string{"TestStandingLogAsksNobodyFirst", "TestOneInstanceDecidesAsTheLog"},
			Edits: []Edit{{standingLogFile, `events, _ := s.handedOut(key)`, `events, _ := s.handedOut(Key{})`}},
		},
		{
			Name: "an allowance of a log used before its period has begun", Broke: "a window meets two periods at most",
			Tests: []string{"TestStandingLogFromPeriodToPeriod"},
			Edits: []Edit{{standingFile, ` || now < a.start.Add(s.rule.slack)`, ``}},
		},
		{
			Name: "an allowance of a log that is over with its period", Broke: "allowances count against a high key",
			Tests: []string{"TestStandingLogFromPeriodToPeriod"},
			Edits: []Edit{{standingLogFile, `r.lasts = 2*r.Window + r.slack`, `r.lasts = r.Window + r.slack`}},
		},
		{
			Name: "high keys of a log forgotten by a fast clock", Broke: "an allowance is not for high keys",
			Tests: []string{"TestAllowanceOfALogLastsByAllClocks"},
			Edits: []Edit{{highKeysFile, `end.Sub(start) + s.rule.slack`, `end.Sub(start)`}},
		},
		{
			Name: "an allowance of a log that goes on beside rows", Broke: "what is left of an allowance is not spent once it was taken for unspent",
			Tests: []string{"TestAllowanceOfALogEndsForAHighKey"},
			Edits: []Edit{{standingFile, "\t\ts.end(t.key, own.now)\n", "\n"}},
		},
		{
			Name: "an allowance of a log dated by another window", Broke: "allowances count against a high key",
			Tests: []string{"TestAllowancesOfALogAndReloads"},
			Edits: []Edit{{standingLogFile, `c.Start.Add((c.Expires.Sub(c.Start) - s.rule.slack) / 2)`, `c.Start.Add(s.rule.width)`}},
		},
		{
			Name: "an allowance of a log that a clock has forgotten", Broke: "what a clock made that was ahead is not gone by once it is right",
			Tests: []string{"TestClockThatLeapsBesideAnAllowanceOfALog"},
			Edits: []Edit{{standingLogFile, `if !s.remembers(c.Start) {`, `if s == nil {`}},
		},
		{
			Name: "a reset of what is handed out meanwhile", Broke: "a reset forgets what was counted before it, and nothing later",
			Tests: []string{"TestResetWhileAnEventIsHandedOut"},
			Edits: []Edit{{standingLogFile, `e.At.Add(2*s.rule.slack) <= state.Reset`, `e.At <= state.Reset`}},
		},
		{
			Name: "an allowance of a log that a reset does not empty", Broke: "a reset forgets what was counted before it, and nothing later",
			Tests: []string{"TestResetRightAfterAnEventWasHandedOut"},
			Edits: []Edit{{"internal/limiter/reset.go", "s.forget(t.key, now)", "_ = s"}},
		},
		{
			Name:  "a key of a log that gets high while its allowance is made",
			Broke: "what is left of an allowance is not spent once it was taken for unspent",
			Tests: []string{"TestKeyThatGetsHighWhileItsOwnAllowanceIsMade"},
			Edits: []Edit{{allowancesFile, "\tmade.handed = begun.handed\n", "\tif s.inLog() {\n\t\tmade.handed = new(handed)\n\t}\n"}},
		},
		{
			Name: "rows of a log before there is an allowance", Broke: "one instance decides as the algorithm",
			Tests: []string{"TestRowsBeforeThereIsAnAllowanceOfALog"},
			Edits: []Edit{{standingLogFile, `if of.at(now) == nil {`, `if of == nil {`}},
		},
		{
			Name: "allowances of a log not counted beside a new override", Broke: "allowances count against a high key",
			Tests: []string{"TestAllowanceOfALogOfWhoHasNotHeardOfAnOverride"},
			Edits: []Edit{{"internal/limiter/overrides.go", `o.made.Instant().Add(e.opts.newsOverlap()+e.opts.slack())`, `o.made.Instant()`}},
		},
		{
			Name: "a refund of a log's event that nobody was told of", Broke: "what is said to be given back no longer counts",
			Tests: []string{"TestRefundOfAnEventThatCannotBeTold", "TestRefundOfAnEventWithoutAFeed"},
			Edits: []Edit{{"internal/limiter/refund.go", `case details == "":`, `case e != nil:`}},
		},
	}
}
