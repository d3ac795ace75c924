package broken

const (
	byFile      = "internal/limiter/by.go"
	refusedFile = "internal/limiter/judge/unasked.go"
	chargeFile  = "internal/limiter/charge.go"
)

// numbers are builds that break limits by identifier, and rules about phone numbers.
func numbers() []Build {
	const (
		own     = "an identifier's own number is its limit"
		refused = "a refused number is denied, and counts nowhere"
	)
	return []Build{
		{
			Name: "an owner that goes by the default", Broke: own, Tests: []string{"TestByIdentifierAtOwners"},
			Edits: []Edit{{"internal/limiter/handon/router.go", `demand.Target{Plan: p.At(call.Key), `, `demand.Target{Plan: p, `}},
		},
		{
			Name: "a reservation that goes by the default", Broke: own, Tests: []string{"embedded.TestConformanceShared/ByIdentifier"},
			Edits: []Edit{{"internal/limiter/refund.go", `return p.At(t.Key), nil`, `return p, nil`}},
		},
		{
			Name: "numbers of identifiers under one of two hash keys", Broke: own, Tests: []string{"TestByIdentifierUnderTwoHashKeys"},
			Edits: []Edit{{byFile, `for _, hash := range p.Keys {`, `for _, hash := range p.Keys[:1] {`}},
		},
		{
			Name: "refused numbers that are asked for", Broke: refused, Tests: []string{"TestRefusedNumbers"},
			Edits: []Edit{{refusedFile, `return c.Refused != "" && !overridden`, `return c.Refused != "" && c.Cost > 1 && !overridden`}},
		},
		{
			Name: "refused numbers that derive", Broke: refused, Tests: []string{"TestRefusedNumbers"},
			Edits: []Edit{{chargeFile, `&& judge.IsRefused(c)`, `&& judge.IsRefused(c) && cost == 0`}},
		},
		{
			Name: "rules above overrides", Broke: refused, Tests: []string{"TestOverridesStandAboveRules"},
			Edits: []Edit{{
				refusedFile, `c.Override != nil && c.Override.Kind != policy.OverrideLimits`,
				`c.Override != nil && c.Override.Kind == policy.OverrideKind("")`,
			}},
		},
	}
}
