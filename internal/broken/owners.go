package broken

const (
	ownedFile  = "internal/limiter/counted/owned.go"
	guestsFile = "internal/limiter/handon/guests.go"
	handedFile = "internal/cluster/handover.go"
	cutFile    = "internal/cluster/cut.go"
	pulseFile  = "internal/cluster/pulse.go"

	registryFile = "internal/cluster/registry.go"

	preparedFile = "internal/limiter/counted/prepared.go"
	abortFile    = "internal/limiter/counted/abort.go"
	severalFile  = "internal/limiter/handon/several.go"
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
			Name: "the own row read before the write", Broke: limit, Tests: []string{"TestOwnRowIsReadAfterTheWrite"},
			Edits: []Edit{{"internal/limiter/handon/router.go", `	r.shared.Decide(ctx, c, now)
	if c.Err == nil && c.Decision.Recorded == count.RecordedYes && !c.Plan.Cell && !later {
		c.Err = verify(ctx, right)
	}`, `	if c.Err = verify(ctx, right); c.Err == nil {
		r.shared.Decide(ctx, c, now)
	}`}},
		},
		{
			Name: "a read of the own row that began before the write was acknowledged", Broke: limit,
			Tests: []string{"cluster.TestFenceReadsAfterItWasAsked"},
			Edits: []Edit{{"internal/cluster/fence.go", `	f.next = nil // who comes from now on is not served by this read
	f.mu.Unlock()`, `	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.next = nil; f.mu.Unlock() }()`}},
		},
		{
			Name: "a cold read by an out that is not settled", Broke: limit,
			Tests: []string{"cluster.TestOutIsKnownByALatestRead"},
			Edits: []Edit{{registryFile, `r, _, err = readRow(ctx, cells, id, true)`, `r, _, err = readRow(ctx, cells, id, false)`}},
		},
		{
			Name: "a compare-and-set without an answer taken as done", Broke: limit,
			Tests: []string{"cluster.TestSetOutWithoutAnswerIsTriedAgain"},
			Edits: []Edit{{registryFile, `		if err == nil {
			return nil
		}
		if ctx.Err() != nil {`, `		if !errors.Is(err, ErrConflict) {
			return nil
		}
		if ctx.Err() != nil {`}},
		},
		{
			Name: "a member whose row is gone", Broke: limit, Tests: []string{"cluster.TestRowThatIsGoneReadsAsOut"},
			Edits: []Edit{{registryFile, `return row{State: stateOut}, Version{}, nil`, `return row{State: stateIn}, Version{}, nil`}},
		},
		{
			Name: "a member ID used again", Broke: limit,
			Tests: []string{"cluster.TestMemberThatWasSetOutJoinsAnew", "cluster.TestMemberThatStoodStillAdmitsNothing"},
			Edits: []Edit{{"internal/cluster/seat.go", `ID: NewID(), Address`, `ID: ID(c.opts.Address), Address`}},
		},
		{
			Name: "a view that does not wait for those that earlier ones wait for", Broke: limit,
			Tests: []string{"cluster.TestWhoTheNextViewWaitsFor"},
			Edits: []Edit{{"internal/cluster/view.go", `ids := slices.Clone(v.Must)`, `var ids []ID`}},
		},
		{
			Name: "a slice kept past a view that was missed", Broke: limit,
			Tests: []string{"cluster.TestSlicesStayOnlyAlongAnUnbrokenChain"},
			Edits: []Edit{{"internal/cluster/seat.go", `stays := s.confirmed == v.Number-1 && v.Mode`, `stays := v.Mode`}},
		},
		{
			Name: "a view confirmed while calls may still admit", Broke: limit,
			Tests: []string{"cluster.TestNothingIsConfirmedBeforeCallsAreOver"},
			Edits: []Edit{{"internal/cluster/seat.go", `	drain(moved)
	s.end(moved)`, `	time.AfterFunc(drainWithin, func() { s.end(moved) })`}},
		},
		{
			Name: "a view that is gone", Broke: limit, Tests: []string{"cluster.TestViewIsGoneByALatestRead"},
			Edits: []Edit{{"internal/cluster/seat.go", `return fmt.Errorf("%w: view %d is gone", errLost, s.view.Number)`, `return nil`}},
		},
		{
			Name: "keys that fall out of memory taken for new", Broke: limit,
			Tests: []string{"TestMemoryOfAnyBoundKeepsTheLimit"},
			Edits: []Edit{{ownedFile, `|| !right.IsNew(t.Key, t.Plan.Life())`, `|| !right.Owned()`}},
		},
		{
			Name: "keys not opened for guests", Broke: limit, Vital: true,
			Tests: []string{"peer.TestOwnerKnowsWhatGuestsCount"},
			Edits: []Edit{{guestsFile, `return r.shared.Open(ctx, key, theirs)`, `return nil`}},
		},
		{
			Name: "a guest that does not verify", Broke: limit,
			Tests: []string{"peer.TestGuestWhoseRightIsOverAdmitsNothing"},
			Edits: []Edit{{guestsFile, `if err := g.verify(ctx); err`, `if err := ctx.Err(); err`}},
		},
		{
			Name: "guests' keys that stay new", Broke: limit, Tests: []string{"TestOpenedKeysAreNotNew"},
			Edits: []Edit{{guestsFile, `if err := right.Note(key, life); err`, `if err := ctx.Err(); err`}},
		},
		{
			Name: "units that the next owner does not know of", Broke: limit,
			Tests: []string{"TestNothingIsCountedThatTheNextOwnerMayNotKnowOf", "TestNewKeysAreNotRead"},
			Edits: []Edit{{ownedFile, `if err := k.right.Note(t.Key, t.Plan.Life()); err`, `if err := ctx.Err(); err`}},
		},
		{
			Name: "a key noted after its slice was handed over", Broke: limit,
			Tests: []string{"cluster.TestNoteFailsOnceTheTenureIsOver"},
			Edits: []Edit{{handedFile, `if t.Ended() { // the keys`, `if false { // the keys`}},
		},
		{
			Name: "knowledge of another tenure", Broke: limit,
			Tests: []string{"cluster.TestKnowledgeIsForOneTenure"},
			Edits: []Edit{{handedFile, `t != nil && t.Since == view`, `t != nil`}},
		},
		{
			Name: "knowledge handed over past a view that was missed", Broke: limit,
			Tests: []string{"cluster.TestWhatIsHandedOver"},
			Edits: []Edit{{"internal/cluster/seat.go", `s.moved = nil; stays`, `s.moved = nil; true`}},
		},
		{
			Name: "knowledge handed over before the view is confirmed", Broke: limit,
			Tests: []string{"cluster.TestWhatIsHandedOver"},
			Edits: []Edit{{handedFile, `len(moved) > 0 && s.confirmed == view.Number`, `len(moved) > 0`}},
		},
		{
			Name: "keys new to who has just begun", Broke: limit,
			Tests: []string{"cluster.TestKnowledgeIsCompleteInTime"},
			Edits: []Edit{{handedFile, `(t.known.complete.Load() || time.Since(t.began) > life)`, `true`}},
		},
		{
			Name: "told denials that outlive a reset", Broke: "denials that are told end in time",
			Tests: []string{"TestToldDenialEndsWithWhatItRestsOn", "TestWhatIsGivenBackEndsWhatIsKnown"},
			Edits: []Edit{{"internal/limiter/handon/router.go", `	r.told.Changes.Note(&key)`, ``}},
		},
		{
			Name: "a refund that ends no memory of others", Broke: "what is given back ends what is known",
			Tests: []string{"TestWhatIsGivenBackEndsWhatIsKnown"},
			Edits: []Edit{{"internal/limiter/tellnews.go", `	case store.ChangeRefund:
		e.decider.Changed(c.Key)`, `	case store.ChangeRefund:`}},
		},
		{
			Name: "an owner that remembers what it read before a refund", Broke: "what is given back ends what is known",
			Tests: []string{"TestOwnerReadsBeforeARefund"},
			Edits: []Edit{{ownedFile, ` || o.changes.Of(&t.Key) != changes {`, ` {`}},
		},
		{
			Name: "memory used by another right", Broke: limit,
			Tests: []string{"peer.TestMemoryBelongsToOneRight"},
			Edits: []Edit{{ownedFile, `k.right != right || `, ``}},
		},
		{
			Name: "memory that outlives its policy", Broke: limit, Tests: []string{"TestMemoryEndsWithItsPolicy"},
			Edits: []Edit{{"internal/limiter/counted/counted.go", `		c.owned.forget(t.Key) // what`, `		// what`}},
		},
		{
			Name: "memory pruned by a clock that was set back", Broke: limit,
			Tests: []string{"TestMemoryDoesNotOutliveAClockSetBack"},
			Edits: []Edit{{ownedFile, `case c.opts.Timing.IsSetBack(k.latest, now):`, `case false:`}},
		},
		{
			Name: "an opening that does not wait for a batch under way", Broke: limit,
			Tests: []string{"peer.TestOpeningWaitsForWhatIsUnderWay"},
			Edits: []Edit{{
				ownedFile, `s.flights.join(ctx, key, r, s.opts.StoreTimeout, func(ctx context.Context, _ []*demand.Request) {
		led = true
		if err = s.counted.behind.writeKey(ctx, key); err == nil {
			err = s.counted.owned.open(key, theirs)
		}
	})`, `led, err = true, s.counted.owned.open(key, theirs)`,
			}},
		},
	}
}

// members are builds that break what members know of each other.
func members() []Build {
	const (
		cut   = "members that are cut off from each other decide all the same"
		death = "a member is set out once it is dead, and soon"
		clock = "a member that may not decide leaves its keys to others"
	)
	return []Build{
		{
			Name: "owners that others do not reach", Broke: cut, Tests: []string{"cluster.TestMembersThatAreCutOffShareAllKeys"},
			Edits: []Edit{{cutFile, `case !s.view.wasCut() && len(s.pulse.lost(members, cutFor)) > 0:`, `case false:`}},
		},
		{
			Name: "a cut from who stands still", Broke: cut, Tests: []string{"cluster.TestShortCutsChangeNothing"},
			Edits: []Edit{{pulseFile, `min(f.last, t.last)-max(since, f.steady, t.steady) >= least`, `p.clock-since >= least`}},
		},
		{
			Name: "owners again as soon after every cut", Broke: cut, Tests: []string{"cluster.TestMembersThatAreCutOffShareAllKeys"},
			Edits: []Edit{{cutFile, `return wholeFor << (max(v.Cuts, 1) - 1)`, `return wholeFor`}},
		},
		{
			Name: "cuts that are never forgotten", Broke: cut, Tests: []string{"cluster.TestMembersThatAreCutOffShareAllKeys"},
			Edits: []Edit{{cutFile, `if time.Since(s.since) > 2*s.view.wholeFor() {`, `if false {`}},
		},
		{
			Name: "the dead never set out", Broke: death, Tests: []string{"cluster.TestDeathIsKnownSoon"},
			Edits: []Edit{{"internal/cluster/propose.go", `s.self.ID || !s.pulse.silent(m)`, `s.self.ID || true`}},
		},
		{
			Name: "dead by one instance's word", Broke: death, Tests: []string{"cluster.TestWhenSilenceIsDeath"},
			Edits: []Edit{{pulseFile, `case refused && p.isRefusedByOthers(m.ID), p`, `case refused, p`}},
		},
		{
			Name: "dead by refused connections though it beats", Broke: death, Tests: []string{"cluster.TestWhenSilenceIsDeath"},
			Edits: []Edit{{pulseFile, `h.beat.Left || p.clock-h.last > limit`, `h.beat.Left || limit == goneFor || p.clock-h.last > limit`}},
		},
		{
			Name: "silence of those that nobody listened to", Broke: death, Tests: []string{"cluster.TestDeafMembersSetNobodyOut"},
			Edits: []Edit{{pulseFile, `p.clock += min(now.Sub(p.at), longestDeaf)`, `p.clock += now.Sub(p.at)`}},
		},
		{
			Name: "two processes at one address", Broke: death, Tests: []string{"cluster.TestAnAddressIsOneProcess"},
			Edits: []Edit{{pulseFile, `isRefusedByOthers(m.ID), p.isReplaced(h):`, `isRefusedByOthers(m.ID):`}},
		},
		{
			Name: "the own row not heeded", Broke: "a member that was set out joins anew",
			Tests: []string{"cluster.TestMemberThatWasSetOutJoinsAnew"},
			Edits: []Edit{{"internal/cluster/seat.go", `s.heedOwnRow(ctx); err`, `ctx.Err(); err`}},
		},
		{
			Name: "an owner whose clock is wrong", Broke: clock, Tests: []string{"cluster.TestInstanceWithAWrongClockHandsOnCalls"},
			Edits: []Edit{{"internal/cluster/seat.go", `case aside && s.isIn() && !s.isAlone():`, `case false:`}},
		},
		{
			Name: "aside for a moment of a wrong clock", Broke: clock, Tests: []string{"cluster.TestMomentsOfAWrongClockChangeNothing"},
			Edits: []Edit{{"internal/cluster/aside.go", `time.Now(), asideAfter`, `time.Now(), time.Duration(0)`}},
		},
		{
			Name: "aside though nobody else is there", Broke: clock, Tests: []string{"cluster.TestMomentsOfAWrongClockChangeNothing"},
			Edits: []Edit{{"internal/cluster/seat.go", `aside && s.isIn() && !s.isAlone():`, `aside && s.isIn():`}},
		},
	}
}

// prepared are builds that break calls of several demands, by the owners of their keys.
func prepared() []Build {
	const (
		doubt = "a denial rests on what stays, with owners"
		none  = "denied: nothing stays counted"
	)
	return []Build{
		{
			Name: "denials by units in doubt", Broke: doubt,
			Tests: []string{"TestDenialWaitsForWhatIsInDoubt", "TestSeveralDemandsByOwners"},
			Edits: []Edit{{abortFile, `r.Err, r.Fewer = inDoubt(), fewer`, `r.Fewer = fewer`}},
		},
		{
			Name: "units in doubt for ever", Broke: doubt, Tests: []string{"TestUnitsOfWhoIsGoneCount"},
			Edits: []Edit{{preparedFile, `case u.state == unitDeciding || now.Before(u.until):`, `case true:`}},
		},
		{
			Name: "aborted in the store alone", Broke: doubt, Tests: []string{"TestSeveralDemandsByOwners"},
			Edits: []Edit{{abortFile, `	takeOut(k.plan, &k.State, units)`, ``}},
		},
		{
			Name: "aborted in memory alone", Broke: none, Tests: []string{"TestSeveralDemandsByOwners"},
			Edits: []Edit{{abortFile, `storing.Go(func() { s.giveAllBack(ctx, t, gone) })`, `storing.Go(func() {})`}},
		},
		{
			Name: "an abort applied again", Broke: "no more than the limit, with owners", Tests: []string{"TestAbortsAreAppliedOnce"},
			Edits: []Edit{{abortFile, `		s.prepared.commit(t.Key, id)`, `		_ = id`}},
		},
		{
			Name: "a take counted after its abort", Broke: none, Tests: []string{"TestAbortMayComeFirst"},
			Edits: []Edit{{preparedFile, `if p.units < maxPrepared {`, `if false {`}},
		},
		{
			Name: "nothing aborted when another demand denies", Broke: none, Tests: []string{"TestSeveralDemandsByOwners"},
			Edits: []Edit{{severalFile, `	r.abort(ctx, undone.that(isPrepared))`, ``}},
		},
		{
			Name: "two cells decided last", Broke: none, Tests: []string{"TestTwoCellsStandOrFallTogether"},
			Edits: []Edit{{severalFile, `cells > 1 ||`, `cells > 2 ||`}},
		},
		{
			Name: "calls that wait for each other", Broke: "two calls that meet are both decided",
			Tests: []string{"TestTwoCallsThatMeetAreBothDecided"},
			Edits: []Edit{{severalFile, `	r.abort(ctx, all[at+1:].that(isPrepared))`, ``}},
		},
		{
			Name: "room that a full log does not show", Broke: "no more than the limit, with owners",
			Tests: []string{"limiter/counted.TestWhatIsAbortedInAFullLogIsReadAgain"},
			Edits: []Edit{{abortFile, `if len(k.State.Logs[i].Events) >= k.plan.Logs[i].Limit {`, `if i < 0 {`}},
		},
	}
}
