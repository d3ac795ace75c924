package policyfile_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func TestBlocks(t *testing.T) {
	policies, err := policyfile.Parse("p.yaml", []byte(written(goodLimits, "block_for: 10m", "block_factor: 2", "block_max: 1d")))
	if err != nil {
		t.Fatal(err)
	}
	p := policies[0]
	if p.BlockFor != 10*time.Minute || p.BlockFactor != 2 || p.BlockMax != 24*time.Hour {
		t.Errorf("read as %v, %d, %v", p.BlockFor, p.BlockFactor, p.BlockMax)
	}
	policies, err = policyfile.Parse("p.yaml", []byte(written(goodLimits, "block_for: 10m")))
	if err != nil {
		t.Fatal(err)
	}
	text := policyfile.Format(policies)
	if !strings.HasSuffix(string(text), "    block_for: 10m\n    block_factor: 1\n    block_max: 10m\n") {
		t.Errorf("formatted as\n%s", text)
	}
	again, err := policyfile.Parse("formatted.yaml", text)
	if err != nil || !reflect.DeepEqual(again[0], policies[0].WithDefaults()) {
		t.Errorf("read back as %+v, %v", again, err)
	}
}

func TestMistakesInBlocks(t *testing.T) {
	for _, test := range []struct{ name, members, want string }{
		{"no unit", "block_for: 600", "4: policies[0].block_for: 600 has no unit: write it as a duration such as 30s, 15m"},
		{"no unit, and what depends on it", "block_for: 600|block_factor: 2|block_max: 1d", "4: policies[0].block_for: 600 has no unit"},
		{"no time", "block_for: 0s", "4: policies[0].block_for: 0s is out of range: use 1s to 31d, or remove it"},
		{"too long", "block_for: 32d", "4: policies[0].block_for: 32d is out of range: use 1s to 31d"},
		{"no factor", "block_for: 10m|block_factor: 0", "5: policies[0].block_factor: 0 is out of range: use 1 (blocks do not grow) to 10"},
		{"a factor in decimals", "block_for: 10m|block_factor: 1.5|block_max: 1h", `5: policies[0].block_factor: "1.5" is not a whole number`},
		{"a factor far too large", "block_for: 10m|block_factor: 4294967298|block_max: 1h", "block_factor: 2147483647 is out of range"},
		{"a factor without room", "block_for: 10m|block_factor: 2", "block_max: blocks grow by block_factor 2, and block_for is 10m already"},
		{"a factor alone", "block_factor: 2", "4: policies[0].block_factor: has no meaning without block_for: give that too"},
		{"a top alone", "block_max: 1h", "4: policies[0].block_max: has no meaning without block_for: give that too"},
		{"a top of nothing", "block_for: 10m|block_max: 0s", "5: policies[0].block_max: 0s is out of range: use 1s to 31d, or remove it"},
		{"a top below", "block_for: 10m|block_max: 5m", "5: policies[0].block_max: 5m is shorter than block_for: use 10m or more"},
		{"misspelt", "block_four: 10m", "4: policies[0].block_four: unknown key: did you mean block_for?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lines(t, written(append([]string{goodLimits}, strings.Split(test.members, "|")...)...))
			if len(got) != 1 || !strings.Contains(got[0], test.want) {
				t.Errorf("messages:\n%s\nwant one with:\n%s", strings.Join(got, "\n"), test.want)
			}
		})
	}
}
