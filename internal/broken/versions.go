package broken

// versions are builds that break what has a call decided by one version of the policies.
func versions() []Build {
	const one = "a call is decided by one version of the policies"
	const file = "internal/limiter/versions.go"
	return []Build{
		{
			Name: "an owner that decides by another definition", Broke: one,
			Tests: []string{"TestCallsAreDecidedAnewByALaterVersion", "TestCallsWhileVersionsChange"},
			Edits: []Edit{{file, `return p != nil && p.Print == call.Print &&`, `return p != nil &&`}},
		},
		{
			Name: "each demand by the version of its moment", Broke: one,
			Tests: []string{"TestDemandsOfACallAreUnderOneVersion"},
			Edits: []Edit{
				{"internal/limiter/call.go", `m.charge(set, c, call.Op,`, `m.charge(m.plans.inForce.Load(), c, call.Op,`},
				{"internal/limiter/call.go", "\tset := m.plans.inForce.Load()\n", ``},
			},
		},
		{
			Name: "a call decided anew that counts already", Broke: "a call counts once",
			Tests: []string{"TestCallsAreDecidedAnewByALaterVersion"},
			Edits: []Edit{{file, `return len(charges) == 1 || !slices.ContainsFunc(charges, func(c demand.Charge) bool { return !undoes(c) })`,
				`return len(charges) == 1 || slices.ContainsFunc(charges, undoes) || true`}},
		},
		{
			Name: "an owner that is behind and does not read", Broke: one,
			Tests: []string{"TestCallsAreDecidedAnewByALaterVersion"},
			Edits: []Edit{{file, `if set.version < call.Version && ps.settings`, `if false && ps.settings`}},
		},
		{
			Name: "a number given to other policies", Broke: "a version is the same on all instances",
			Tests: []string{"policystore.TestNumbersOnlyGrow"},
			Edits: []Edit{{"internal/policystore/follow.go", `return f.restore(ctx, latest)`, `return nil`}},
		},
		{
			Name: "an instance that was away and says that it is ready", Broke: "who is ready has the latest policies",
			Tests: []string{"policystore.TestAwayIsNotReady"},
			Edits: []Edit{{"internal/policystore/follow.go", `time.Since(f.settled) > staleAfter`, `false`}},
		},
	}
}
