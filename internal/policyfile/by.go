package policyfile

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// defaultValue stands for all identifiers without a number of their own.
const defaultValue = "default"

// readBy reads the units that a window may hold for some identifiers, and for all others.
func readBy(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	const cure = "write {DE: 1000, AT: 300, default: 50} or the like"
	if !f.Expect(n, yamlfile.Map, cure) {
		return
	}
	for _, m := range n.Members {
		read, _ := readUnits(f, m.Value)
		switch {
		case m.Key == defaultValue:
			l.Limit = read
		case len(m.Key) > maxWordLen:
			f.Add(n, "a value of %d bytes: none that may stand here is longer than %d", len(m.Key), maxWordLen)
		default:
			if l.By == nil {
				l.By = make(map[string]int64)
			}
			l.By[m.Key] = read
		}
	}
	switch {
	case n.Partial:
	case n.Member(defaultValue) == nil:
		f.Add(n, "no default: add default: and how many units all others have, such as 0, which denies them")
	case len(n.Members) == 1:
		f.Add(n, "only default: name others too, or write limit: %d", l.Limit)
	}
}

// needNumber adds a mistake if a limit has no number of units, or two.
func needNumber(f *yamlfile.File, n *yamlfile.Node, algorithm string) {
	if n.Kind != yamlfile.Map {
		return
	}
	if algorithm == policy.Conversion.Name {
		needAfter(f, n)
		return
	}
	limit, by := n.Member("limit"), n.Member("by")
	for _, of := range []string{"after", "unconfirmed"} {
		if member := n.Member(of); member != nil {
			f.Add(member, "only a %s has it: write limit", policy.Conversion.Name)
			return
		}
	}
	switch {
	case limit != nil && by != nil:
		f.Add(limit, "by says it, for all others under default: remove limit, or by")
	case limit == nil && by == nil:
		f.Missing(n, "limit", "give the number of units that a window may hold")
	}
}

// limitUnits reads the units that a limit holds for all identifiers.
var limitUnits = units(func(l *policy.Limit) *int64 { return &l.Limit })

// writeUnits writes the units that a limit holds, if key is their key.
func writeUnits(key string) func(*policy.Limit) string {
	return func(l *policy.Limit) string {
		if key != unitsKey(l) {
			return ""
		}
		if l.Max != 0 {
			return flow(requestMembers, l)
		}
		if len(l.By) == 0 {
			return strconv.FormatInt(l.Limit, 10)
		}
		var b strings.Builder
		for _, value := range slices.Sorted(maps.Keys(l.By)) {
			fmt.Fprintf(&b, "%s: %d, ", scalar(value), l.By[value])
		}
		return fmt.Sprintf("{%s%s: %d}", b.String(), defaultValue, l.Limit)
	}
}

// unitsKey returns the key of the units that l holds.
func unitsKey(l *policy.Limit) string {
	switch {
	case l.Unconfirmed:
		return "unconfirmed"
	case l.Max == 0 && len(l.By) > 0:
		return "by"
	case l.Max == 0 && l.Algorithm == policy.Conversion.Name:
		return "after"
	}
	return "limit"
}
