package broken

const (
	onceFile  = "internal/limiter/once.go"
	claimFile = "internal/limiter/once/claims.go"
	holdsFile = "internal/limiter/once/holds.go"
)

// once are builds under which what happens once happens again.
func once() []Build {
	return []Build{
		{
			Name: "a takeover that does not remove", Broke: "a repetition counts once", Finds: 3000,
			Tests: []string{"TestClaimOfTheDead"},
			Edits: []Edit{{onceFile, `if len(gone) == 0 {`, `if len(gone) >= 0 {`}},
		},
		{
			Name: "a takeover while the owner may live", Broke: "a claim is taken over only when its owner has given up",
			Tests: []string{"TestClaimOfTheDead"},
			Edits: []Edit{{
				onceFile,
				`> set.StoreTimeout+2*set.ClockTolerance+staleMargin`,
				`> 0*(set.StoreTimeout+2*set.ClockTolerance+staleMargin)`,
			}},
		},
		{
			Name: "a repetition decided anew", Broke: "a repetition counts once", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/RepetitionsCountOnce"},
			Edits: []Edit{{onceFile, `		case known.State == usageAnswered:
			return known.Answer.answer(), true, nil`, `		case known.State == usageAnswered:
			// decided anew`}},
		},
		{
			Name: "a refund into other buckets", Broke: "what limits that were changed since had counted stays charged",
			Tests: []string{"TestRefundAfterBucketsHaveChanged"},
			Edits: []Edit{{planFile, `if r.Kind == policy.SlidingWindow {`, `if false {`}},
		},
		{
			Name: "a refund not claimed", Broke: "a receipt gives back once", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/RefundOnce"},
			Edits: []Edit{{
				"internal/limiter/refund.go",
				`got.first = got.first || !said[i].Before`,
				`got.first = true`,
			}},
		},
		{
			Name: "a repetition that subtracts again", Broke: "a receipt gives back once", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/RefundOnce"},
			Edits: []Edit{{
				"internal/limiter/refund.go",
				`entry.Claimed, entry.Again = said[i].At, said[i].Before`,
				`entry.Claimed = said[i].At`,
			}},
		},
		{
			Name: "a cell that gives back again", Broke: "a receipt gives back once",
			Tests: []string{"TestRepetitionFinishesWhatTheFirstBegan"},
			Edits: []Edit{{
				"internal/limiter/cas/decider.go",
				`if s.Reset >= e.At || e.Claimed > 0 && !s.Applied.Note(e.ID, e.Claimed, now) {`,
				`if s.Reset >= e.At {`,
			}},
		},
		{
			Name: "a cell that forgets receipts and gives back again", Broke: "a receipt gives back once",
			Tests: []string{"TestLateRepetitionDoesNothingTwice"},
			Edits: []Edit{{"internal/limiter/store/applied.go", `claimed <= a.Since || `, ``}},
		},
		{
			Name: "a repetition that finishes nothing", Broke: "a receipt that comes again finishes what was begun",
			Tests: []string{"TestRepetitionFinishesWhatTheFirstBegan"},
			Edits: []Edit{{
				"internal/limiter/refund.go",
				`case said[i].Fate == what:`,
				`case said[i].Fate == what && !said[i].Before:`,
			}},
		},
		{
			Name: "a claim that meets itself and gives up", Broke: "what a claim is for happens, though an answer was lost",
			Tests: []string{"TestClaimThatIsRepeated"},
			Edits: []Edit{{claimFile, `if len(tried) == 1 && (errors.Is(`, `if len(tried) >= 1 && (errors.Is(`}},
		},
		{
			Name: "a claim in doubt taken for another's", Broke: "what is in doubt is not said to be refunded",
			Tests: []string{"TestRefundInDoubt"},
			Edits: []Edit{{claimFile, `return store.EventID{}, store.Untold(err)`, `return store.EventID{}, err`}},
		},
		{
			Name: "ended reservations not given back", Broke: "a reservation ends",
			Tests: []string{"TestReservationsOfCountersEnd"},
			Edits: []Edit{{holdsFile, `err == nil && first {`, `err == nil && first && ends == nil {`}},
		},
		{
			Name: "a stop that leaves reservations", Broke: "an ordinary stop ends reservations",
			Tests: []string{"TestStopEndsReservations", "TestStopEndsReservationsOfSeveral"},
			Edits: []Edit{{holdsFile, `lastEnds = time.Second`, `lastEnds = 0`}},
		},
		{
			Name: "a stop that leaves what reservations gave back", Broke: "an ordinary stop ends reservations",
			Tests: []string{"TestStopEndsReservations"},
			Edits: []Edit{{
				"internal/limiter/engine.go", `rest := context.WithCancel(context.WithoutCancel(ctx))`, `rest := context.WithCancel(ctx)`,
			}},
		},
		{
			Name: "a block not published", Broke: "a block holds on every instance",
			Tests: []string{"TestBlockReachesOtherInstancesAndOnesStartedAnew"},
			Edits: []Edit{{"internal/limiter/judge/blocks.go", `	if fresh {`, `	if fresh && b.News == nil {`}},
		},
	}
}
