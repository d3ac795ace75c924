package broken

import "slices"

const (
	localFile     = "internal/limiter/local.go"
	localSyncFile = "internal/limiter/localsync.go"
	localCallFile = "internal/limiter/localcall.go"
	localPourFile = "internal/limiter/localbucket.go"
)

// inMemory are builds that decide in memory without what its promises rest on.
func inMemory() []Build {
	return slices.Concat(inMemoryBound(), inMemoryResets(), inMemoryUnits(), inMemoryDemands())
}

// inMemoryBound are those that let more through than the bound says, or less than they
// may.
func inMemoryBound() []Build {
	const bound = "beyond the limit in memory no more than the bound"
	return []Build{
		{
			Name: "local: read before it is written", Broke: bound,
			Tests: []string{"TestLocalIsWrittenBeforeItIsRead"},
			Edits: []Edit{{localSyncFile, "	b.writeEach(ctx, g.writes, func", `	for i := range g.keys {
		if s := &g.keys[i]; s.read {
			_ = b.merge(ctx, s)
			s.read = false
		}
	}
	b.writeEach(ctx, g.writes, func`}},
		},
		{
			Name: "local: others' totals not merged", Broke: bound,
			Tests: []string{"TestLocalMergesWhatOthersCount", "TestLocalOvershootIsBounded"},
			Edits: []Edit{{localSyncFile, `w.Put = b.totalsOf(&found, stamp)`, `_ = stamp`}},
		},
		{
			Name: "local: known keys not read", Broke: bound,
			Tests: []string{"TestLocalMergesWhatOthersCount", "TestLocalOvershootIsBounded"},
			Edits: []Edit{{localFile, `b.mayBeReset(c.plan) || usedBefore(d, c.cost)`, `b.mayBeReset(c.plan)`}},
		},
		{
			Name: "local: own totals read as others'", Broke: "what others counted in memory counts once",
			Tests: []string{"TestLocalMergesWhatOthersCount"},
			Edits: []Edit{{localSyncFile, `if c.Row.node() != b.counted.ids.nodeBits {`, `if c.Row != (EventID{}) {`}},
		},
		{
			Name: "local: shared buckets not adopted", Broke: bound,
			Tests: []string{"TestLocalBucketsMergeWhatOthersPour", "TestLocalBucketsAreBounded"},
			Edits: []Edit{{localPourFile, `		s.levels = slices.Clone(there.levels)`, ``}},
		},
		{
			Name: "local: forgotten what was poured during a sync", Broke: bound,
			Tests: []string{"TestLocalBucketsMergeWhatOthersPour"},
			Edits: []Edit{{localPourFile, `func(u *unsynced) { u.onto(local, s, at) }`, `func(*unsynced) {}`}},
		},
		{
			Name: "local: poured at once when it is synced", Broke: "a bucket in memory drains between syncs",
			Tests: []string{"TestLocalBucketsDrainBetweenSyncs"},
			Edits: []Edit{{localPourFile, `.minus(drained)`, ``}, {localPourFile, `			drained := amount`, `			_ = amount`}},
		},
	}
}

// inMemoryResets are those that a reset does not reach as it should.
func inMemoryResets() []Build {
	const reach = "a reset reaches what is counted in memory, and no more"
	return []Build{
		{
			Name: "local: a reset by each one's own instant", Broke: reach,
			Tests: []string{"TestLocalReset"},
			Edits: []Edit{{"internal/limiter/news.go", `c.Until = e.forgotten(t)`, `_ = e.forgotten(t)`}},
		},
		{
			Name: "local: a reset forgotten by who has not seen the key", Broke: reach,
			Tests: []string{"TestLocalReset"},
			Edits: []Edit{{"internal/limiter/news.go", `e.behind.resets.put(c.Key, c.Until)`, `_ = c`}},
		},
		{
			Name: "local: counted under a reset that was not heard of", Broke: reach,
			Tests: []string{"TestLocalResetThatIsNotHeard"},
			Edits: []Edit{{localSyncFile, `			w.Add = lost`, `			lost = nil`}},
		},
		{
			Name: "local: written under an earlier date than counted", Broke: reach,
			Tests: []string{"TestLocalReset"},
			Edits: []Edit{{"internal/limiter/exclusive.go", `x.date(ch, now)`, `x.date(ch, at)`}},
		},
		{
			Name: "local: written under the date of an idempotency key, before the reset", Broke: reach,
			Tests: []string{"TestLocalResetBeforeAKeyedTake"},
			Edits: []Edit{{"internal/limiter/exclusive.go", `ch.plan.mirrors != nil && ch.id.Instant() < now`, `false`}},
		},
		{
			Name: "local: buckets not reset in memory", Broke: reach,
			Tests: []string{"TestLocalReset"},
			Edits: []Edit{{localFile, `return b.resetBuckets(ctx, t)`, `return nil`}},
		},
	}
}

// inMemoryUnits are those that count a unit too often, or not at all.
func inMemoryUnits() []Build {
	const (
		once   = "what was counted in memory is written once"
		refund = "a refund of what was counted in memory gives back once"
	)
	return []Build{
		{
			Name: "local: a failed write dropped", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{localSyncFile, `		b.again(s.unsynced)`, `		_ = b.again`}},
		},
		{
			Name: "local: a failed write counted again", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{localSyncFile, `		u.counts = w.again(err).Add
`, ``}},
		},
		{
			Name: "local: nothing written at a stop", Broke: "a stop writes what was counted in memory",
			Tests: []string{"TestLocalIsWrittenAtAStop"},
			Edits: []Edit{{localSyncFile, `for b.writeAll(ctx) && ctx.Err() == nil {`, `for false {`}},
		},
		{
			Name: "local: refunded before it is written", Broke: refund,
			Tests: []string{"TestLocalRefundOfWhatIsNotWritten"},
			Edits: []Edit{{"internal/limiter/localrefund.go", `	if !own && b.opts.now()`, `	if own && !own && b.opts.now()`}},
		},
		{
			Name: "local: removed elsewhere and kept here", Broke: refund,
			Tests: []string{"TestLocalRefund"},
			Edits: []Edit{{localSyncFile, `		if p.promising {`, `		if false {`}},
		},
		{
			Name: "local: news of refunds ignored", Broke: refund,
			Tests: []string{"TestLocalRefund"},
			Edits: []Edit{{"internal/limiter/news.go", "		if e.behind != nil {\n			e.behind.heardOf(c.Key)", "		if e.behind != nil {"}},
		},
		{
			Name: "local: a failed sync of a bucket forgets the one before", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{localPourFile, `addSaturating(earlier.poured.units, u.poured.units), alone: earlier.poured.alone`, `u.poured.units`}},
		},
		{
			Name: "local: a bucket poured again though it was stored", Broke: once,
			Tests: []string{"TestLocalBucketsAreFilledOnce", "TestLocalBucketsAfterALongDoubt"},
			Edits: []Edit{{serialFile, `slices.ContainsFunc(*tried, c.has)`, `false`}},
		},
		{
			Name: "local: a refund of a bucket not written", Broke: refund,
			Tests: []string{"TestLocalRefund"},
			Edits: []Edit{{"internal/limiter/localrefund.go", `		if sums {
			b.noteScooped(t, n)
		}
`, ``}},
		},
	}
}

// inMemoryDemands are those of calls of several demands, of which memory decides some.
func inMemoryDemands() []Build {
	const denied = "denied: nothing stays counted"
	return []Build{
		{
			Name: "local: kept when another demand denies", Broke: denied,
			Tests: []string{"TestLocalBesideOthersAllOrNone", "TestLocalBesideOneThatFails"},
			Edits: []Edit{{localCallFile, `		case anyBlocks(far):`, `		case false:`}},
		},
		{
			Name: "local: kept when another demand is dated anew", Broke: "an idempotency key counts once",
			Tests: []string{"TestLocalBesideOneThatIsDatedAnew"},
			Edits: []Edit{{localCallFile, `return tooEarly(c.err) })`, `return false })`}},
		},
		{
			Name: "local: others asked though memory denies", Broke: denied,
			Tests: []string{"TestLocalBesideOthersAllOrNone"},
			Edits: []Edit{{localCallFile, `	case anyBlocks(near):`, `	case len(far) < 0:`}},
		},
		{
			Name: "local: units of a bucket kept when another demand denies", Broke: denied,
			Tests: []string{"TestLocalBesideOthersAllOrNone"},
			Edits: []Edit{{localCallFile, `if c.plan.cell && counted != (entry{}) {`, `if false {`}},
		},
	}
}
