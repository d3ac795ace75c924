package broken

const (
	ownedFile  = "internal/limiter/owned.go"
	guestsFile = "internal/limiter/guests.go"
	ownersFile = "internal/limiter/owners.go"
)

// owners are builds that break what each key's owner goes by, and who owns it.
func owners() []Build {
	const limit = "no more than the limit, with owners"
	return []Build{
		{
			Name: "no read of the own row", Broke: limit, Vital: true,
			Tests: []string{"cluster.TestVerifyReadsTheOwnRow"},
			Edits: []Edit{{"internal/cluster/tenure.go", `t.seat.fence.verify(ctx); err`, `ctx.Err(); err`}},
		},
		{
			Name: "a view acted on before it is installed", Broke: limit,
			Tests: []string{"cluster.TestNobodyActsOnAViewBeforeItIsInForce"},
			Edits: []Edit{{"internal/cluster/seat.go", `if !s.view.installed(known) {`, `if false {`}},
		},
		{
			Name: "keys not opened for guests", Broke: limit, Vital: true,
			Tests: []string{"peer.TestOwnerKnowsWhatGuestsCount"},
			Edits: []Edit{
				{guestsFile, `return false, e.shared.open(ctx, key, e.opts.StoreTimeout)`, `return false, nil`},
				{ownersFile, `return e.shared.open(ctx, call.Key, time.Duration(call.Cost)*time.Millisecond)`, `return nil`},
			},
		},
		{
			Name: "a guest that does not verify", Broke: limit,
			Tests: []string{"peer.TestGuestWhoseRightIsOverAdmitsNothing"},
			Edits: []Edit{{guestsFile, `if err := g.verify(ctx); err`, `if err := ctx.Err(); err`}},
		},
		{
			Name: "memory used by another right", Broke: limit,
			Tests: []string{"peer.TestMemoryBelongsToOneRight"},
			Edits: []Edit{{ownedFile, `k.right != right || `, ``}},
		},
		{
			Name: "memory that outlives its policy", Broke: limit, Tests: []string{"TestMemoryEndsWithItsPolicy"},
			Edits: []Edit{{"internal/limiter/counted.go", `		c.owned.forget(t.key) // what`, `		// what`}},
		},
		{
			Name: "memory pruned by a clock that was set back", Broke: limit,
			Tests: []string{"TestMemoryDoesNotOutliveAClockSetBack"},
			Edits: []Edit{{ownedFile, `case c.opts.isSetBack(k.latest, now):`, `case false:`}},
		},
		{
			Name: "an opening that does not wait for a batch under way", Broke: limit,
			Tests: []string{"peer.TestOpeningWaitsForWhatIsUnderWay"},
			Edits: []Edit{{
				ownedFile, `s.flights.join(ctx, key, r, s.opts.StoreTimeout, func(context.Context, []*request) {
		led, err = true, s.counted.owned.open(key, theirs)
	})`, `led, err = true, s.counted.owned.open(key, theirs)`,
			}},
		},
	}
}
