package broken

const (
	countedFile  = "internal/limiter/counted/counted.go"
	unitsFile    = "internal/limiter/counted/units.go"
	planFile     = "internal/limiter/demand/plan.go"
	logFile      = "internal/limiter/count/slidinglog.go"
	windowFile   = "internal/limiter/count/fixedwindow.go"
	takeBackFile = "internal/limiter/totals/takeback.go"
)

// counting are builds that write and count logs another way than the proof needs.
func counting() []Build {
	return []Build{
		{
			Name: "read before write", Broke: "a take is counted by whoever reads after it", Vital: true, Finds: 1500,
			Tests: []string{"TestManyEnginesOverASlowStore"},
			Edits: []Edit{
				{countedFile, `	state, discounted, wrote, err := c.readAfter(ctx, t, &w, &q)
	own.discounted = discounted
`, `	state, _, err := c.read(ctx, t, &q)
	for i := range state.Logs {
		for _, e := range own.events {
			state.Logs[i].Events = store.InsertEvent(state.Logs[i].Events, e)
		}
	}
	for _, n := range own.counts {
		state.Add(n)
	}
	unwritten := c.store.Write(ctx, &w)
	wrote := unwritten == nil
	if !wrote {
		err = unwritten
	}
`},
			},
		},
		{
			Name: "a trip's read beside its writes", Broke: "a take is counted by whoever reads after it",
			Tests: []string{"cassandra.TestBothWays"},
			Edits: []Edit{{"internal/cassandra/writeread.go", `		write(ctx, l, writes)
`, `		var said sync.WaitGroup
		said.Go(func() { write(ctx, l, writes) })
		defer said.Wait()
`}, {"internal/cassandra/writeread.go", `	"errors"
`, `	"errors"
	"sync"
`}},
		},
		{
			Name: "read of L + 1 rows", Broke: "the read is complete", Vital: true, Finds: 1500,
			Tests: []string{"TestReadIsLongEnoughForTheWholeBatch"},
			Edits: []Edit{{"internal/limiter/count/plan.go", `Max: log.Limit + own}`, `Max: log.Limit + 1}`}},
		},
		{
			Name: "rank instead of total", Broke: "all that is counted is, whatever its place in the order", Vital: true, Finds: 1500,
			Tests: []string{"TestClocksThatDifferByTwiceTheTolerance"},
			Edits: []Edit{{countedFile, `	unsettled = c.hasUnsettled(t.Plan, state, own.now)`, `	for i := range state.Logs {
		log, mine := &state.Logs[i], own.events[0].ID.Node()
		log.Events = slices.DeleteFunc(log.Events, func(e store.Event) bool {
			node := e.ID.Node()
			return e.At > own.now || e.At == own.now && string(node[:]) > string(mine[:])
		})
	}
	unsettled = c.hasUnsettled(t.Plan, state, own.now)`}},
		},
		{
			Name: "reads at LOCAL_ONE", Broke: "levels meet", Vital: true, Finds: 1500,
			Tests: []string{"TestLevelsOfWritesAndReads"},
			Edits: []Edit{{"internal/limiter/count/plan.go", `Level: p.Consistency.Read,`, `Level: policy.LevelLocalOne,`}},
		},
		{
			Name: "writes at ONE", Broke: "levels meet", Finds: 1500,
			Tests: []string{"TestLevelsOfWritesAndReads"},
			Edits: []Edit{{countedFile, `Level: t.Plan.Consistency.Write, Add: own.counts,`, `Level: policy.LevelOne, Add: own.counts,`}},
		},
		{
			Name: "a full log that is written first", Broke: "nothing is written of a take that its log is known to be full for",
			Tests: []string{"TestFullLogIsReadBeforeItIsWritten"},
			Edits: []Edit{{countedFile, `FullUntil(&state, own.now); until > own.now {`, `FullUntil(&state, own.now); false && until > own.now {`}},
		},
		{
			Name: "a log that was full read first for ever", Broke: "a take asks the store once, unless it may be denied",
			Tests: []string{"TestFullLogIsWrittenFirstOnceThereIsRoom"},
			Edits: []Edit{{countedFile, `c.denied.Put(t.Key, until)`, `c.denied.Put(t.Key, store.Distant)`}},
		},
	}
}

// timing are builds whose rows live, or whose windows reach, another way than it needs.
func timing() []Build {
	return []Build{
		{
			Name: "TTL = W", Broke: "rows live long enough", Vital: true, Finds: 1500,
			Tests: []string{"TestTimeToLiveOfEvents"},
			Edits: []Edit{{
				planFile,
				`o.Timing.Lasting(log.Window)`,
				`log.Window - o.Timing.Slack()`,
			}},
		},
		{
			Name: "the tolerance counted once", Broke: "the lower bound has the slack", Finds: 1500,
			Tests: []string{"TestClocksThatDifferByTwiceTheTolerance"},
			Edits: []Edit{{"internal/limiter/clock/timing.go", `return 2 * t.Tolerance }`, `return t.Tolerance }`}},
		},
		{
			Name: "no tolerance", Broke: "the lower bound has the slack", Finds: 1500,
			Tests: []string{"TestClocksThatDifferByTwiceTheTolerance"},
			Edits: []Edit{{"internal/limiter/clock/timing.go", `return 2 * t.Tolerance }`, `return 0 * t.Tolerance }`}},
		},
		{
			Name: "the lower bound at the time of the read", Broke: "the lower bound is the batch's", Finds: 5000,
			Tests: []string{"TestLowerBoundIsOfTheBatchAndNotOfTheRead"},
			Edits: []Edit{{
				countedFile,
				`		state, wrote, err = store.WriteThenRead(ctx, c.store, w, q)
`,
				`		if err = c.store.Write(ctx, w); err == nil {
			later := t.Plan.Query(t.Key, store.InstantOf(c.opts.Now()), 1, q.Logs[:0])
			wrote = true
			state, err = c.store.Read(ctx, &later)
		}
`,
			}},
		},
		{
			Name: "later instants capped", Broke: "the upper end is not capped", Finds: 1500,
			Tests: []string{"TestClocksThatDifferByTwiceTheTolerance"},
			Edits: []Edit{{logFile, `if r.holds(&log.Events[i], now) {`, `if r.holds(&log.Events[i], now) && log.Events[i].At <= now {`}},
		},
		{
			Name: "later windows not counted", Broke: "the upper end is not capped",
			Tests: []string{"TestClockThatStepsBackAdmitsNoMore"},
			Edits: []Edit{{windowFile, `start, _ := r.WindowAt(now)
	return s.UnitsFrom(r.ID, start)`, `start, _ := r.WindowAt(now)
	return s.UnitsAt(r.ID, start)`}},
		},
	}
}

// answering are builds that answer what they should not.
func answering() []Build {
	return []Build{
		{
			Name: "own units missing accepted", Broke: "own units are among what was read",
			Tests: []string{"TestOwnUnitsMissingFromTheRead"},
			Edits: []Edit{{countedFile, `.Timing.Slack())) || !t.Plan.Promising {`, `.Timing.Slack())) || t != nil {`}},
		},
		{
			Name: "an answer after the time-out accepted", Broke: "a late answer admits nothing",
			Tests: []string{"TestAnswerThatComesTooLateAdmitsNothing"},
			Edits: []Edit{{countedFile, `if err == nil && ctx.Err() != nil { // an answer`, `if false { // an answer`}},
		},
		{
			Name: "takes without an answer not removed", Broke: "what was not admitted is taken back", Finds: 3000,
			Tests: []string{"TestTakeThatFailedIsTakenBackOnceTheStoreIsBack", "TestTakesThatFailedDuringAnOutageAreTakenBack"},
			Edits: []Edit{{countedFile, `	if len(p.Logs) > 0 && len(takes.batch) > 0 {`, `	if len(p.Logs) > 1<<10 {`}},
		},
		{
			Name: "denied attempts taken back under count: all", Broke: "what is said to be counted is", Finds: 1500,
			Tests: []string{"embedded.TestConformanceShared/Trace"},
			Edits: []Edit{{countedFile, `return r.Decision.Recorded != count.RecordedYes`, `return !r.Decision.WouldAllow`}},
		},
		{
			Name: "a clock beyond the tolerance decides", Broke: "a clock beyond the tolerance decides nothing", Finds: 1500,
			Tests: []string{"TestClockBeyondTheTolerance"},
			Edits: []Edit{{
				"internal/limiter/clock/timing.go",
				`if t.IsSkewed() {`,
				`if false {`,
			}},
		},
		{
			Name: "units by a clock that was not looked at", Broke: "a clock beyond the tolerance decides nothing",
			Tests: []string{"TestClockThatIsSetWithinACall"},
			Edits: []Edit{{unitsFile, `	now, err := c.opts.Timing.Checked()`, `	now, err := c.opts.Timing.Instant(), error(nil)`}},
		},
		{
			Name: "a sum that is of one key's log only", Broke: "a log's sum is that of its events",
			Tests: []string{"TestLogsOfTwoHashKeysAreAddedUp"},
			Edits: []Edit{{"internal/limiter/store/state.go", `s.Logs[i] = Log{Events: events}`, `s.Logs[i].Events = events`}},
		},
	}
}
