package broken

const serialFile = "internal/limiter/cas/decider.go"

// comparing are builds that compare and set carelessly.
func comparing() []Build {
	return []Build{
		{
			Name: "no fence: unknown taken for dead", Broke: "an attempt without an answer counts once or never", Vital: true, Finds: 1500,
			Tests: []string{"TestSerialFencesUnknownOutcomes"},
			Edits: []Edit{{serialFile, `return fateOpen`, `return fateDead`}},
		},
		{
			Name: "no fence: unknown taken for stored", Broke: "an attempt without an answer counts once or never", Finds: 1500,
			Tests: []string{"TestSerialSaysThatAnOutcomeIsUnknown", "TestSerialFencesUnknownOutcomes"},
			Edits: []Edit{{serialFile, `return fateOpen`, `return fateStored`}},
		},
		{
			Name: "a conflict with one's own attempt taken for another's", Broke: "nobody is told \"no\" of a write that may be stored", Finds: 3000,
			Tests: []string{"TestConflictWithOnesOwnLostAttemptIsUnknown"},
			Edits: []Edit{{
				"internal/limiter/store/errors.go",
				`return fmt.Errorf("%w: whether it was stored is not known: %s", ErrUnavailable, failed.Error())`,
				`return fmt.Errorf("%w", failed)`,
			}},
		},
		{
			Name: "instants by own clock alone", Broke: "instants of a key never go back", Finds: 3000,
			Tests: []string{"TestSerialInstantsNeverGoBack"},
			Edits: []Edit{{serialFile, `max(now, c.newest, s.Reset+1)`, `max(now, s.Reset+1)`}},
		},
		{
			Name: "a denial by the cell as it was written last", Broke: "nobody is denied where there is room",
			Tests: []string{"TestCellThatIsRememberedIsLookedUpBeforeItDenies"},
			Edits: []Edit{{serialFile, `if !known {
				return nil`, `if true {
				return nil`}},
		},
		{
			Name: "a bucket kept full when the log beside it denies", Broke: "denied: nothing stays counted",
			Finds: 3000,
			Tests: []string{"embedded.TestConformanceShared/AllOrNone"},
			Edits: []Edit{{
				"internal/limiter/counted/together.go",
				`if err := s.serial.GiveBack(ctx, &p.Target, &counted, true); err != nil {`,
				`if counted.Cost < 0 {`,
			}},
		},
		{
			Name: "a log kept when the bucket beside it denies", Broke: "denied: nothing stays counted", Finds: 1500,
			Edits: []Edit{{togetherFile, `p.Err == nil && !p.Decision.WouldAllow {`, `p.Err == nil && !p.Decision.WouldAllow && !p.Plan.Cell {`}},
		},
	}
}
