package broken

const (
	byFile      = "internal/limiter/by.go"
	refusedFile = "internal/limiter/refused.go"
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
			Edits: []Edit{{"internal/limiter/owners.go", `target{plan: p.at(call.Key), `, `target{plan: p, `}},
		},
		{
			Name: "a reservation that goes by the default", Broke: own, Tests: []string{"embedded.TestConformanceShared/ByIdentifier"},
			Edits: []Edit{{"internal/limiter/token.go", `return p.at(t.key), nil`, `return p, nil`}},
		},
		{
			Name: "numbers of identifiers under one of two hash keys", Broke: own, Tests: []string{"TestByIdentifierUnderTwoHashKeys"},
			Edits: []Edit{{byFile, `for _, hash := range p.keys {`, `for _, hash := range p.keys[:1] {`}},
		},
		{
			Name: "refused numbers that are asked for", Broke: refused, Tests: []string{"TestRefusedNumbers"},
			Edits: []Edit{{refusedFile, `return c.refused != "" && !overridden`, `return c.refused != "" && c.cost > 1 && !overridden`}},
		},
		{
			Name: "refused numbers that derive", Broke: refused, Tests: []string{"TestRefusedNumbers"},
			Edits: []Edit{{chargeFile, `p.Mode == policy.ModeEnforce && c.isRefused()`, `p.Mode == policy.ModeEnforce && cost == 0`}},
		},
		{
			Name: "rules above overrides", Broke: refused, Tests: []string{"TestOverridesStandAboveRules"},
			Edits: []Edit{{refusedFile, `c.over != nil && c.over.Kind != policy.OverrideLimits`, `c.over != nil && c.over.Kind == ""`}},
		},
	}
}
