package broken

// counters are builds that take back from counters at the wrong time, or too often.
func counters() []Build {
	return []Build{
		{
			Name: "a counter taken back twice", Broke: "a subtraction is made once", Vital: true, Finds: 1500,
			Tests: []string{"TestSubtractionIsNeverRepeated", "TestDeniedEventsAreTakenBackAtOnceAndCountersLater"},
			Edits: []Edit{{takeBackFile, `	t.Push(TakeBack{Write: w})
`, `	t.Push(TakeBack{Write: w})
	again := *w
	t.Push(TakeBack{Write: &again})
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
			Edits: []Edit{{countedFile, `p.Tally && counts == count.RecordedUnknown {`, `counts == count.RecordedUnknown {`}},
		},
		{
			Name: "subtracted again after a time-out", Broke: "a subtraction is made once", Finds: 1500,
			Tests: []string{"TestSubtractionIsNeverRepeated"},
			Edits: []Edit{{
				takeBackFile,
				`(len(b.Write.Add) == 0 || b.Write.Tally || errors.Is(err, store.ErrNotStored))`,
				`(len(b.Write.Add) == 0 || errors.Is(err, store.ErrUnavailable))`,
			}, {
				"internal/limiter/store/write.go",
				`if len(w.Add) == 0 || errors.Is(err, ErrNotStored) {`,
				`if len(w.Add) >= 0 || errors.Is(err, ErrNotStored) {`,
			}},
		},
		{
			Name: "discounted while it is subtracted", Broke: "units are discounted only until their subtraction begins", Finds: 5000,
			Tests: []string{"TestUnitsAreDiscountedOnlyUntilTheirSubtractionBegins"},
			Edits: []Edit{{takeBackFile, `return r.of.made != r.made`, `return false`}},
		},
		{
			Name: "discounted from what is counted another way", Broke: "a reload admits no more than both policies may",
			Tests: []string{"TestReloadUnderLoad", "TestReloadBetweenCallers"},
			Edits: []Edit{{takeBackFile, `	if !tally {`, `	if !tally || tally {`}},
		},
		{
			Name: "discounted and lowered", Broke: "units are discounted only until their subtraction begins",
			Tests: []string{"TestSubtractionWhileAnotherKeyIsRead"},
			Edits: []Edit{{countedFile, `c.takeBacks.Recount(own.discounted, state)`, `_ = own.discounted`}},
		},
	}
}
