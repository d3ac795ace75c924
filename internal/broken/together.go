package broken

const togetherFile = "internal/limiter/counted/together.go"

// together are builds that break calls of several demands.
func together() []Build {
	return []Build{
		{
			Name: "demands without holds", Broke: "all or none, whenever the process dies", Finds: 5000,
			Tests: []string{"TestDemandsOfADeadProcessFreeThemselves"},
			Edits: []Edit{{togetherFile, `p.Hold, p.unconfirmed = confirmWithin*o.StoreTimeout, true`, `_ = o`}},
		},
		{
			Name: "answered before holds are confirmed", Broke: "what was answered stays", Finds: 1500,
			Tests: []string{"TestLateConfirmationIsUnknown"},
			Edits: []Edit{{togetherFile, `s.confirm(ctx, confirm); err`, `s.confirm(ctx, confirm[:0]); err`}},
		},
		{
			Name: "a late confirmation accepted", Broke: "a late confirmation is unknown",
			Tests: []string{"TestLateConfirmationIsUnknown"},
			Edits: []Edit{{togetherFile, `if ctx.Err() != nil { // it began`, `if false { // it began`}},
		},
		{
			Name: "a removal not the later word", Broke: "the later word on an event stands", Finds: 1500,
			Tests: []string{"cassandra.TestConformance/SettledAfterItsRefund"},
			Edits: []Edit{
				{"internal/cassandra/events.go", "saysSettle\n\tsaysRemove\n", "saysRemove\n\tsaysSettle\n"},
				{"internal/limiter/simulation_cluster_test.go", "saysSettled\n\tsaysRemoved\n", "saysRemoved\n\tsaysSettled\n"},
			},
		},
	}
}
