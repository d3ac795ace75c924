package identifier_test

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestCarriers holds that carriers of one name in two countries differ, and that numbers without a known carrier share one.
func TestCarriers(t *testing.T) {
	read, err := identifier.Reader(&policy.Policy{
		Normalize: policy.Normalize{Form: policy.FormE164, Region: "DE"},
		Derive:    []policy.Derivation{{From: policy.PartCarrier}, {From: policy.PartCountry}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[string][]string{
		"0172 12345678":  {"DE/Vodafone", "DE"},
		"+4917298765432": {"DE/Vodafone", "DE"},
		"+447700900123":  {"GB/O2", "GB"},
		"+8801711123456": {"BD/Grameenphone", "BD"},
		"+14155552671":   {policy.UnknownCarrier, "US"}, // the tables have none of +1
		"+4930123456":    {policy.UnknownCarrier, "DE"}, // a landline
		"+80012345678":   {policy.UnknownCarrier, "+800"},
	} {
		_, found, err := read(number)
		if err != nil || !slices.Equal(found.Parts, want) {
			t.Errorf("%s: %q, %v, want %q", number, found.Parts, err, want)
		}
	}
}
