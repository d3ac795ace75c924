package broken

const overrideFile = "internal/limiter/override.go"

// overrides are builds of which not every instance does as an operator said.
func overrides() []Build {
	const latest = "the latest override stands on every instance"
	return []Build{
		{
			Name: "an override told only for as long as it lasts", Broke: latest,
			Tests: []string{"TestInstancesThatStartKnowOverrides"},
			Edits: []Edit{{
				overrideFile, `TTL: signals.ChangesLive, Details`,
				`TTL: min(signals.ChangesLive, until.Sub(at).Truncate(1e9)+1e9), Details`,
			}},
		},
		{
			Name: "an override dated by its own clock alone", Broke: latest,
			Tests: []string{"TestSlowClocksOverrideFastOnes"},
			Edits: []Edit{{overrideFile, `at := max(now, s.known.Latest(key)+1)`, `at := now`}},
		},
		{
			Name: "an override under one hash key", Broke: "an override holds under all keys that are read",
			Tests: []string{"TestOverridesUnderTwoHashKeys"},
			Edits: []Edit{{overrideFile, `append([]store.Key{t.Key}, t.Old...) {
		at :=`, `append([]store.Key{t.Key}, t.Old[:0]...) {
		at :=`}},
		},
		{
			Name: "an override of a policy that is reloaded", Broke: "an override goes by the policy in force",
			Tests: []string{"TestOverridesSurviveReloads"},
			Edits: []Edit{{"internal/limiter/overrides/overrides.go", `made != nil && made.from == base`, `made != nil`}},
		},
	}
}
