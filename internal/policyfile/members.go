package policyfile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// member is a key of a map of the file.
type member[T any] struct {
	key  string
	need string // hint if it is missing; empty: it may be missing
	codec[T]
}

// codec reads and writes the value of a member of a T.
type codec[T any] struct {
	read  func(f *yamlfile.File, n *yamlfile.Node, into *T) // and adds the mistakes in n to f
	write func(from *T) string                              // empty: the member is left out
}

// contents are the contents of a file that is being read.
type contents struct {
	File
	envoyAt *yamlfile.Node // the section for Envoy; nil: there is none, or it can't be read
}

const wholeFile = "start it with policies: and a list of at least one policy"

// The members of each map of a file, in the order in which they are written.
var (
	fileMembers = []member[contents]{
		{"policies", wholeFile, codec[contents]{readPolicies, writePolicies}},
		{"envoy", "", codec[contents]{readEnvoy, writeEnvoy}},
	}
	policyMembers = []member[policy.Policy]{
		{"name", "give the policy a name by which requests ask for it", name(func(p *policy.Policy) *string { return &p.Name })},
		{"description", "", codec[policy.Policy]{readDescription, name(func(p *policy.Policy) *string { return &p.Description }).write}},
		{"limits", "give the policy at least one limit", codec[policy.Policy]{readLimits, writeLimits}},
		{"count", "", word(func(p *policy.Policy) *policy.CountMode { return &p.Count })},
		{"counting", "", word(func(p *policy.Policy) *policy.Counting { return &p.Counting })},
		{"guarantee", "", word(func(p *policy.Policy) *policy.Guarantee { return &p.Guarantee })},
		{"write_from", "", percentage(func(p *policy.Policy) *int { return &p.WriteFrom })},
		{"consistency", "", consistency},
		{"mode", "", word(func(p *policy.Policy) *policy.Mode { return &p.Mode })},
		{"on_store_error", "", word(func(p *policy.Policy) *policy.OnStoreError { return &p.OnStoreError })},
		{"normalize", "", codec[policy.Policy]{readNormalize, writeNormalize}},
		{"derive", "", codec[policy.Policy]{readDerive, writeDerive}},
		{"countries", "", choice(func(p *policy.Policy) *policy.Choice { return &p.Countries }, "[DE, AT]")},
		{"number_types", "", choice(func(p *policy.Policy) *policy.Choice { return &p.NumberTypes }, "[premium_rate, unknown]")},
		{"block_for", "", nonzero(duration, func(p *policy.Policy) *time.Duration { return &p.BlockFor }, blockTimes)},
		{"block_factor", "", nonzero(number, func(p *policy.Policy) *int { return &p.BlockFactor },
			fmt.Sprintf("1 (blocks do not grow) to %d", policy.MaxBlockFactor))},
		{"block_max", "", nonzero(duration, func(p *policy.Policy) *time.Duration { return &p.BlockMax }, blockTimes)},
	}
	limitMembers = []member[policy.Limit]{
		{"name", "", name(func(l *policy.Limit) *string { return &l.Name })},
		{"algorithm", "give an algorithm, such as sliding-log", word(func(l *policy.Limit) *string { return &l.Algorithm })},
		{"limit", "", codec[policy.Limit]{readLimit, writeUnits("limit")}},
		{"after", "", codec[policy.Limit]{limitUnits.read, writeUnits("after")}},
		{"unconfirmed", "", codec[policy.Limit]{readUnconfirmed, writeUnits("unconfirmed")}},
		{"by", "", codec[policy.Limit]{readBy, writeUnits("by")}},
		{"window", "", codec[policy.Limit]{readWindow, writeWindow(false)}},
		{"hold", "", codec[policy.Limit]{duration(func(l *policy.Limit) *time.Duration { return &l.Window }).read, writeWindow(true)}},
		{"timezone", "", name(func(l *policy.Limit) *string { return &l.Timezone })},
		{"buckets", "", nonzero(number, func(l *policy.Limit) *int { return &l.Buckets },
			fmt.Sprintf("%d to %d", policy.MinBuckets, policy.MaxBuckets))},
		{"rounding", "", word(func(l *policy.Limit) *policy.Rounding { return &l.Rounding })},
		{"burst", "", nonzero(units, func(l *policy.Limit) *int64 { return &l.Burst }, upTo(policy.MaxLimit))},
		{"shadow", "", yes(func(l *policy.Limit) *bool { return &l.Shadow })},
		{"min_conversion", "", percentage(func(l *policy.Limit) *int { return &l.MinConversion })},
		{"probe", "", parsed(func(l *policy.Limit) *time.Duration { return &l.Probe }, policy.ParseProbe, policy.FormatProbe)},
		{"until", "", word(func(l *policy.Limit) *policy.Until { return &l.Until })},
	}
	requestMembers = []member[policy.Limit]{
		{"from", "write from: request", codec[policy.Limit]{readFrom, func(*policy.Limit) string { return fromRequest }}},
		{"max", "give the largest limit that a request may bring, such as max: 1000",
			nonzero(units, func(l *policy.Limit) *int64 { return &l.Max }, upTo(policy.MaxLimit))},
		{"default", "give the limit of requests that bring none, such as default: 100, or 0, which denies them",
			codec[policy.Limit]{limitUnits.read, func(l *policy.Limit) string { return strconv.FormatInt(l.Limit, 10) }}},
	}
	consistencyMembers = []member[policy.Consistency]{
		{"write", "", parsed(func(c *policy.Consistency) *policy.Level { return &c.Write }, policy.ParseWriteLevel, text)},
		{"read", "", parsed(func(c *policy.Consistency) *policy.Level { return &c.Read }, policy.ParseReadLevel, text)},
	}
)

// readMap reads the members of n into a T, and adds their mistakes. It returns false if n is not a map; cure is the
// hint for that case.
func readMap[T any](f *yamlfile.File, n *yamlfile.Node, members []member[T], cure string, into *T) bool {
	if !f.Expect(n, yamlfile.Map, cure) {
		return false
	}
	keys := make([]string, len(members))
	for i, m := range members {
		keys[i] = m.key
	}
	f.ExpectKeys(n, keys)
	for _, m := range members {
		if value := n.Member(m.key); value != nil {
			m.read(f, value, into)
		} else if m.need != "" {
			f.Missing(n, m.key, "%s", m.need)
		}
	}
	return true
}

func readLimits(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
	const cure = "write {algorithm: sliding-log, limit: 10, window: 1h} or the like"
	if !f.Expect(n, yamlfile.List, "start each limit with a dash") {
		return
	}
	for _, item := range n.Items {
		var limit policy.Limit // is kept even if it is wrong, for the indexes in problems
		readMap(f, item, limitMembers, cure, &limit)
		needNumber(f, item, limit.Algorithm)
		needWindow(f, item, &limit)
		p.Limits = append(p.Limits, limit)
	}
}

func writeLimits(p *policy.Policy) string {
	return list(p.Limits, func(l *policy.Limit) string { return flow(limitMembers, l) })
}

// consistency reads and writes the consistency levels of a policy.
var consistency = codec[policy.Policy]{
	func(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
		readMap(f, n, consistencyMembers, "write {write: LOCAL_QUORUM, read: LOCAL_QUORUM} or the like", &p.Consistency)
	},
	func(p *policy.Policy) string { return flow(consistencyMembers, &p.Consistency) },
}
