package broken

const (
	conversionFile = "internal/limiter/count/conversion.go"
	countsFile     = "internal/limiter/count/counts.go"
)

// confirms are builds under which what is confirmed counts otherwise.
func confirms() []Build {
	return []Build{
		{
			Name: "a confirmation not claimed", Broke: "a confirmation counts once", Finds: 3000,
			Tests: []string{"embedded.TestConformanceShared/Conversion", "embedded.TestConformance/Conversion"},
			Edits: []Edit{{
				claimFile,
				`	if !errors.Is(err, store.ErrConflict) {
		return Said{`,
				`	if what == Confirmed {
		version, err = c.ids.Next(c.opts.Timing.Instant()), nil
	}
	if !errors.Is(err, store.ErrConflict) {
		return Said{`,
			}},
		},
		{
			Name: "a confirmation beside a refund", Broke: "what is confirmed is not refunded, nor the other way round", Finds: 3000,
			Tests: []string{"embedded.TestConformanceShared/ConfirmedUnitsCountNoMore"},
			Edits: []Edit{{claimFile, `key := c.Key(SpaceRefund, id[:])`, `key := c.Key(SpaceRefund+string(what), id[:])`}},
		},
		{
			Name: "a confirmation that gives back all", Broke: "a confirmation gives back what counts until then, and nothing else",
			Tests: []string{"embedded.TestConformanceShared/ConfirmTouchesNothingElse"},
			Edits: []Edit{
				{"internal/limiter/confirm.go", `if p.Confirms() {`, `if len(p.Rules) > 0 {`},
				{countsFile, `return !e.Confirmed || slices`, `return e != nil || slices`},
			},
		},
		{
			Name: "a confirmation of another block", Broke: "what has left the window is not confirmed",
			Tests: []string{"TestConversionMatchesTheModel"},
			Edits: []Edit{{conversionFile, `b.Start == r.blockStart(sent) {
			return b`, `b.Sent > 0 {
			return b`}},
		},
		{
			Name: "a probe that leaves no trace", Broke: "probes are apart", Finds: 3000,
			Tests: []string{"TestConversionNeverSendsMoreThanItMay"},
			Edits: []Edit{{conversionFile, `c.Last, c.Probe = max(c.Last, now), isProbe`, `if c.Probe = isProbe; !isProbe {
		c.Last = max(c.Last, now)
	}`}},
		},
	}
}
