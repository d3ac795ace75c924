package broken

const (
	behindFile        = "internal/limiter/counted/behind.go"
	behindBucketsFile = "internal/limiter/counted/behindbuckets.go"
)

// writtenBehind are builds that break what guarantee local rests on.
func writtenBehind() []Build {
	const (
		bound = "under guarantee local no more than the limit, and what the dead had not written"
		once  = "what was admitted from memory is written once"
	)
	return []Build{
		{
			Name: "local: a view confirmed before all is written", Broke: bound,
			Tests: []string{"cluster.TestWhatWasAdmittedIsWrittenBeforeTheViewIsConfirmed"},
			Edits: []Edit{{"internal/cluster/seat.go", `	s.cluster.opts.Flush(ctx)`, `	_ = ctx`}},
		},
		{
			Name: "local: a key opened before all is written", Broke: bound,
			Tests: []string{"TestLocalIsWrittenBeforeItIsOpened", "peer.TestOwnersSimulation"},
			Edits: []Edit{{ownedFile, `err = s.counted.behind.writeKey(ctx, key); err == nil`, `ctx.Err() == nil`}},
		},
		{
			Name: "local: a key read before all is written", Broke: bound,
			Tests: []string{"TestLocalUnderAnotherPolicy", "peer.TestOwnersSimulation"},
			Edits: []Edit{{"internal/limiter/counted/counted.go", `err := c.behind.writeKey(ctx, t.Key); err`, `err := ctx.Err(); err`}},
		},
		{
			Name: "local: a bucket read before all is written", Broke: bound,
			Tests: []string{"TestLocalUnderAnotherPolicy"},
			Edits: []Edit{{behindBucketsFile, `	if err := c.behind.writeKey(ctx, t.Key); err != nil {
		return nil, err
	}
`, ``}},
		},
		{
			Name: "local: a right that is not looked at", Broke: bound,
			Tests: []string{"TestLocalStopsWithItsRight"},
			Edits: []Edit{{behindFile, `time.Since(right.Verified()) < b.patience()`, `true`}},
		},
		{
			Name: "local: a row that was never seen", Broke: bound,
			Tests: []string{"cluster.TestVerifiedSaysWhenTheRowWasSeen"},
			Edits: []Edit{{"internal/cluster/tenure.go", `	return *seen`, `	return time.Now()`}},
		},
		{
			Name: "local: admitted though nothing is written", Broke: bound,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{behindFile, `u != nil && time.Since(u.since) < b.patience()`, `u != nil`}},
		},
		{
			Name: "local: a bucket that others changed, by memory", Broke: bound,
			Tests: []string{"TestLocalBucketsThatOthersChange"},
			Edits: []Edit{{behindBucketsFile, `		b.owned.forgetIf(u.target.Key, p.known)
`, ``}},
		},
		{
			Name: "local: a failed write dropped", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{behindFile, `left = gathered{writes[i].Events, writes[i].Again(err).Add}`, `left = gathered{}`}},
		},
		{
			Name: "local: a failed write counted again", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{behindFile, `writes[i].Again(err).Add`, `writes[i].Add`}},
		},
		{
			Name: "local: a failed write of a bucket dropped", Broke: once,
			Tests: []string{"TestLocalThroughAnOutage"},
			Edits: []Edit{{behindFile, `u.doubt != nil && u.doubt.hasDrained(&u.target, now)`, `true`}},
		},
		{
			Name: "local: a bucket filled again though it was stored", Broke: once,
			Tests: []string{"TestLocalBucketsAreFilledOnce", "TestLocalBucketsAfterALongDoubt"},
			Edits: []Edit{{serialFile, `slices.ContainsFunc(*tried, c.has)`, `false`}},
		},
		{
			Name: "local: nothing written at a stop", Broke: "a stop writes what was admitted",
			Tests: []string{"TestLocalIsWrittenAtAStop"},
			Edits: []Edit{{behindFile, `	defer cancel()
	b.flush(ctx)`, `	defer cancel()`}},
		},
		{
			Name: "local: refunded before it is written", Broke: "a refund gives back once",
			Tests: []string{"TestLocalRefund"},
			Edits: []Edit{{"internal/limiter/handon/router.go", `	if !t.Plan.Behind {`, `	if true {`}},
		},
	}
}
