//go:build race

package limiter_test

// underRace is whether the race detector is on.
const underRace = true
