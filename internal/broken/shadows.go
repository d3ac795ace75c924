package broken

// shadows are builds in which a limit with shadow: true does something.
func shadows() []Build {
	const nothing = "a shadow changes no decision"
	const file = "internal/limiter/count/plan.go"
	return []Build{
		{
			Name: "a shadow that denies", Broke: nothing,
			Tests: []string{"TestShadowsAtOwners", "embedded.TestConformance/ShadowChangesNothing"},
			Edits: []Edit{{file, `fits = fits && (l.Allowed || r.Shadow)`, `fits = fits && l.Allowed`}},
		},
		{
			Name: "a denial remembered for a shadow", Broke: nothing, Tests: []string{"embedded.TestConformanceShared/ShadowChangesNothing"},
			Edits: []Edit{{file, `if !r.Shadow && !r.fits(`, `if !r.fits(`}},
		},
		{
			Name: "a full shadow taken for a full key", Broke: nothing, Tests: []string{"TestShadowsCostNoRequest"},
			Edits: []Edit{{file, `		if r.Shadow {
			continue
		}
		if r.Capacity < 1 {`, `		if r.Capacity < 1 {`}},
		},
		{
			Name: "a wait for a shadow", Broke: nothing, Tests: []string{"embedded.TestConformance/ShadowChangesNothing"},
			Edits: []Edit{{"internal/limiter/count/algorithm.go", `case v.Allowed, r.Shadow:`, `case v.Allowed:`}},
		},
	}
}
