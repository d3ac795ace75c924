package broken

// keys are builds that count under the wrong key.
func keys() []Build {
	return []Build{
		{
			Name: "another hash key that counts by itself", Broke: "hash keys out of step keep the limit", Finds: 1500,
			Tests: []string{"TestHashKeysOutOfStep", "embedded.TestConformanceShared/HashKeysOutOfStep"},
			Edits: []Edit{{planFile, `if !inCell { // a cell's condition`, `if !inCell && inCell { // a cell's condition`}},
		},
		{
			Name: "LOCAL levels without the scope in the key", Broke: "L in each data centre",
			Tests: []string{"TestAnotherPromiseCountsUnderAnotherKey"},
			Edits: []Edit{{planFile, `if scope == policy.ScopeDatacenter {`, `if scope == policy.ScopeNone {`}},
		},
		{
			Name: "neither guarantee nor serial level in the key", Broke: "conditional and plain writes never mix",
			Tests: []string{"TestAnotherPromiseCountsUnderAnotherKey"},
			Edits: []Edit{
				{planFile, `keys.KeySpace{Policy: p.Name, Guarantee: p.Guarantee}`, `keys.KeySpace{Policy: p.Name}`},
				{planFile, `space.SerialLevel = string(o.Serial)`, `_ = o.Serial`},
			},
		},
	}
}
