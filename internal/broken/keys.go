package broken

const agreementFile = "internal/agreement/agreement.go"

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
		{
			Name: "an instance that reads others' settings before it publishes its own", Broke: "instances hash by one key",
			Tests: []string{"agreement.TestOfTwoThatJoinAtTheSameTimeOneIsRefused"},
			Edits: []Edit{
				{agreementFile, "\tif err := a.store.Publish(ctx, mine.ID, text, lasts); err != nil {\n\t\treturn nil, err\n\t}\n", ""},
				{
					agreementFile, "\tfor _, text := range all {\n",
					"\tif err := a.store.Publish(ctx, mine.ID, text, lasts); err != nil {\n\t\treturn nil, err\n\t}\n\tfor _, text := range all {\n",
				},
			},
		},
		{
			Name: "a hash key that only one of two reads", Broke: "instances hash by one key",
			Tests: []string{"agreement.TestHashKeysOutsideOfAChange"},
			Edits: []Edit{{
				"internal/agreement/statement.go", `if s.reads(other.writes()) && other.reads`, `if s.reads(other.writes()) || other.reads`,
			}},
		},
	}
}
