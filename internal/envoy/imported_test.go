package envoy

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/ratelimitd/ratelimitd/internal/envoyimport"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// described is a descriptor of envoyproxy/ratelimit's configuration; its limit is 0 without a rate_limit.
type described struct {
	key, value string
	limit      int64
	below      []*described
}

// yaml writes list in the form of that configuration.
func yaml(list []*described) string {
	items := make([]string, len(list))
	for i, d := range list {
		text := fmt.Sprintf("{key: %s, value: %q", d.key, d.value)
		if d.limit > 0 {
			text += fmt.Sprintf(", rate_limit: {unit: minute, requests_per_unit: %d}", d.limit)
		}
		if len(d.below) > 0 {
			text += ", descriptors: " + yaml(d.below)
		}
		items[i] = text + "}"
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// modelLimit finds a limit as envoyproxy/ratelimit does, 0 if there is none: by key and value joined, else by the first
// such pattern that matches, else by the key. The limit of the last entry counts.
func modelLimit(list []*described, entries []*pb.RateLimitDescriptor_Entry) int64 {
	limit := int64(0)
	for i, e := range entries {
		joined := e.GetKey() + "_" + e.GetValue()
		next := named(list, joined)
		for j := 0; next == nil && j < len(list); j++ {
			if name := list[j].name(); strings.Contains(name, "*") && matches(strings.Split(name, "*"), joined) {
				next = list[j]
			}
		}
		if next == nil {
			next = named(list, e.GetKey())
		}
		if next == nil {
			break
		}
		if i == len(entries)-1 {
			limit = next.limit
		}
		if list = next.below; len(list) == 0 {
			break
		}
	}
	return limit
}

func (d *described) name() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "_" + d.value
}

func named(list []*described, name string) *described {
	for _, d := range list {
		if d.name() == name {
			return d
		}
	}
	return nil
}

// drawList draws descriptors of different keys and values, each with another limit.
func drawList(t *rapid.T, depth int, limits *int64) (list []*described) {
	seen := make(map[string]bool)
	for range rapid.IntRange(1, 4).Draw(t, "descriptors") {
		d := &described{
			key:   rapid.SampledFrom([]string{"k", "l"}).Draw(t, "key"),
			value: rapid.SampledFrom([]string{"", "x", "xy", "x*", "*y", "*"}).Draw(t, "value"),
		}
		if seen[d.name()] {
			continue
		}
		seen[d.name()] = true
		if rapid.Bool().Draw(t, "limited") {
			*limits++
			d.limit = *limits
		}
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			d.below = drawList(t, depth-1, limits)
		}
		list = append(list, d)
	}
	return list
}

// TestImportedLimitsAreFoundAlike holds that limits of any imported configuration are found as by envoyproxy/ratelimit.
func TestImportedLimitsAreFoundAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := int64(0)
		list := drawList(t, 3, &limits)
		if limits == 0 {
			return // nothing is made of it
		}
		text := "domain: d\ndescriptors: " + yaml(list)
		file, _, err := envoyimport.Convert([]envoyimport.Source{{Name: "f.yaml", Data: []byte(text)}}, envoyimport.Options{})
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		d, of := newMapping(file.Envoy).domains["d"], limitsOf(file)
		for range 20 {
			var entries []*pb.RateLimitDescriptor_Entry
			for range rapid.IntRange(1, 4).Draw(t, "entries") {
				entries = append(entries, &pb.RateLimitDescriptor_Entry{
					Key:   rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "key"),
					Value: rapid.SampledFrom([]string{"", "x", "xy", "y", "z", "x*", "*"}).Draw(t, "value"),
				})
			}
			got := int64(0)
			if r := d.find(entries); r != nil {
				got = of[r.policy]
			}
			if want := modelLimit(list, entries); got != want {
				t.Fatalf("%v: found the limit %d, want %d\n%s", entries, got, want, text)
			}
		}
	})
}

// limitsOf returns the limits of file's policies, by their names.
func limitsOf(file policyfile.File) map[string]int64 {
	limits := make(map[string]int64)
	for _, p := range file.Policies {
		limits[p.Name] = p.Limits[0].Limit
	}
	return limits
}
