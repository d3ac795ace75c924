package broken

// resets are builds that forget too little, or admit what a reset forgot.
func resets() []Build {
	return []Build{
		{
			Name: "a reset ignored by counters", Broke: "a reset forgets what was counted", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/ResetReachesEveryEngine"},
			Edits: []Edit{{
				"internal/limiter/store/state.go",
				`c.Start < farthest && c.Epoch >= s.Reset && c.Limit == id`,
				`c.Start < farthest && c.Limit == id`,
			}},
		},
		{
			Name: "news passed over by a clock that is ahead", Broke: "an instance hears all that others tell",
			Tests: []string{"TestNewsAreHeardAfterAClockWentAhead"},
			Edits: []Edit{{"internal/limiter/signals/news.go", `to <= steady.Add(newsLeap)`, `to <= steady.Add(1000*newsLeap)`}},
		},
		{
			Name: "a reset as a delete", Broke: "a reset forgets whatever was written before, by any clock", Finds: 1500,
			Edits: []Edit{
				{"internal/limiter/counted/reset.go", `		if err := c.store.Write(ctx, w); err != nil {`, `		w.Reset = 0
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
			Edits: []Edit{{"internal/limiter/counted/reset.go", `max(now.Add(2*c.opts.ClockTolerance), state.Reset+1)`, `max(now, state.Reset+1)`}},
		},
		{
			Name: "counted under a reset that came in between", Broke: "a reset within a decision admits nothing that it forgot", Finds: 1500,
			Tests: []string{"TestResetWithinADecision"},
			Edits: []Edit{{countedFile, `if !c.renew(t, own, &state) {`, `if true {`}},
		},
		{
			Name: "a record that was not read said to count", Broke: "what is said to be counted is",
			Tests: []string{"TestRecordUnderAResetThatWasNotRead"},
			Edits: []Edit{{countedFile, `failAll(own.batch, count.RecordedUnknown, err) // even of`, `failAll(own.batch, count.RecordedUnknown, err)
		for _, r := range own.batch {
			if r.Op == count.OpRecord {
				r.Err = &count.StoreError{Recorded: count.RecordedYes, Err: err}
			}
		}
		// even of`}},
		},
	}
}
