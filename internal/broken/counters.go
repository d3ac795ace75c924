package broken

// counters are builds that take back from counters at the wrong time, or too often.
func counters() []Build {
	return []Build{
		{
			Name: "a counter taken back twice", Broke: "a subtraction is made once", Vital: true, Finds: 1500,
			Tests: []string{"TestSubtractionIsNeverRepeated", "TestDeniedEventsAreTakenBackAtOnceAndCountersLater"},
			Edits: []Edit{{takeBackFile, "of.plan.span,\n\t}})\n", `of.plan.span,
	}})
	t.push(takeBack{write: &Write{Key: of.key, Level: of.plan.Consistency.Write, Add: negated(counts)}})
`}},
		},
		{
			Name: "a counter taken back at once", Broke: "a subtraction is late enough",
			Tests: []string{"TestSubtractionIsNoYoungerThanAStoreTimeout"},
			Edits: []Edit{{takeBackFile, `b.ripe = time.Now().Add(t.timeout << b.tries)`, `b.ripe = time.Now()`}},
		},
		{
			Name: "an unknown addition subtracted", Broke: "only what was acknowledged is subtracted", Finds: 1500,
			Tests: []string{"TestCounterThatTimedOutIsNeverSubtractedFrom"},
			Edits: []Edit{{countedFile, `p.tally && counts == RecordedUnknown:`, `counts == RecordedUnknown:`}},
		},
		{
			Name: "subtracted again after a time-out", Broke: "a subtraction is made once", Finds: 1500,
			Tests: []string{"TestSubtractionIsNeverRepeated"},
			Edits: []Edit{{
				takeBackFile,
				`(len(b.write.Add) == 0 || b.write.Tally || errors.Is(err, ErrNotStored))`,
				`(len(b.write.Add) == 0 || errors.Is(err, ErrUnavailable))`,
			}},
		},
		{
			Name: "discounted while it is subtracted", Broke: "units are discounted only until their subtraction begins", Finds: 5000,
			Tests: []string{"TestUnitsAreDiscountedOnlyUntilTheirSubtractionBegins"},
			Edits: []Edit{{takeBackFile, `if r.of.made != r.made {`, `if false {`}},
		},
		{
			Name: "a reset ignored by counters", Broke: "a reset forgets what was counted", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/ResetReachesEveryEngine"},
			Edits: []Edit{{
				"internal/limiter/store.go",
				`c.Start < farthest && c.Epoch >= s.Reset && c.Limit == id {`,
				`c.Start < farthest && c.Limit == id {`,
			}},
		},
		{
			Name: "a reset as a delete", Broke: "a reset forgets whatever was written before, by any clock", Finds: 1500,
			Edits: []Edit{
				{"internal/limiter/reset.go", `		if err := c.store.Write(ctx, w); err != nil {`, `		w.Reset = 0
		for i := range state.Logs {
			for _, e := range state.Logs[i].Events {
				w.Remove = append(w.Remove, e.ID)
			}
		}
		for _, n := range state.Counts {
			n.Units = -n.Units
			w.Add = append(w.Add, n)
		}
		if err := c.store.Write(ctx, w); err != nil {`},
			},
		},
		{
			Name: "a reset dated by own clock alone", Broke: "a reset forgets whatever was written before, by any clock", Finds: 3000,
			Tests: []string{"TestResetForgetsWhatAFastClockHasDated"},
			Edits: []Edit{{"internal/limiter/reset.go", `max(now.Add(2*c.opts.ClockTolerance), state.Reset+1)`, `max(now, state.Reset+1)`}},
		},
		{
			Name: "counted under a reset that came in between", Broke: "a reset within a decision admits nothing that it forgot", Finds: 1500,
			Tests: []string{"TestResetWithinADecision"},
			Edits: []Edit{{countedFile, `if !c.renew(t, own, &state) {`, `if true {`}},
		},
	}
}
