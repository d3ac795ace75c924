package policyfile

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// member is a key of a map of the file, and the reader of its value.
type member[T any] struct {
	key  string
	need string // hint if it is missing; empty: it may be missing
	read reader[T]
}

// reader reads the value n of a member into a T, and adds its mistakes to f.
type reader[T any] func(f *yamlfile.File, n *yamlfile.Node, into *T)

// contents are the contents of a file that is being read.
type contents struct {
	File
	envoyAt *yamlfile.Node // the section for Envoy; nil: there is none, or it can't be read
}

const wholeFile = "start it with policies: and a list of at least one policy"

// The members of each map of a file, in the order in which Format writes them.
var (
	fileMembers = []member[contents]{
		{"policies", wholeFile, readPolicies},
		{"envoy", "", readEnvoy},
	}
	policyMembers = []member[policy.Policy]{
		{"name", "give the policy a name by which requests ask for it", word(func(p *policy.Policy) *string { return &p.Name })},
		{"description", "", readDescription},
		{"limits", "give the policy at least one limit", readLimits},
		{"count", "", word(func(p *policy.Policy) *policy.CountMode { return &p.Count })},
		{"counting", "", word(func(p *policy.Policy) *policy.Counting { return &p.Counting })},
		{"guarantee", "", word(func(p *policy.Policy) *policy.Guarantee { return &p.Guarantee })},
		{"write_from", "", percentage(func(p *policy.Policy) *int { return &p.WriteFrom })},
		{"consistency", "", readConsistency},
		{"mode", "", word(func(p *policy.Policy) *policy.Mode { return &p.Mode })},
		{"on_store_error", "", word(func(p *policy.Policy) *policy.OnStoreError { return &p.OnStoreError })},
		{"normalize", "", readNormalize},
		{"derive", "", readDerive},
		{"countries", "", choice(func(p *policy.Policy) *policy.Choice { return &p.Countries }, "[DE, AT]")},
		{"number_types", "", choice(func(p *policy.Policy) *policy.Choice { return &p.NumberTypes }, "[premium_rate, unknown]")},
		{"block_for", "", nonzero(duration, func(p *policy.Policy) *time.Duration { return &p.BlockFor }, blockTimes)},
		{"block_factor", "", nonzero(number, func(p *policy.Policy) *int { return &p.BlockFactor },
			fmt.Sprintf("1 (blocks do not grow) to %d", policy.MaxBlockFactor))},
		{"block_max", "", nonzero(duration, func(p *policy.Policy) *time.Duration { return &p.BlockMax }, blockTimes)},
	}
	limitMembers = []member[policy.Limit]{
		{"name", "", word(func(l *policy.Limit) *string { return &l.Name })},
		{"algorithm", "give an algorithm, such as sliding-log", word(func(l *policy.Limit) *string { return &l.Algorithm })},
		{"limit", "", readLimit},
		{"after", "", units(func(l *policy.Limit) *int64 { return &l.Limit })},
		{"unconfirmed", "", readUnconfirmed},
		{"by", "", readBy},
		{"window", "", readWindow},
		{"hold", "", duration(func(l *policy.Limit) *time.Duration { return &l.Window })},
		{"timezone", "", word(func(l *policy.Limit) *string { return &l.Timezone })},
		{"rounding", "", word(func(l *policy.Limit) *policy.Rounding { return &l.Rounding })},
		{"buckets", "", nonzero(number, func(l *policy.Limit) *int { return &l.Buckets },
			fmt.Sprintf("%d to %d", policy.MinBuckets, policy.MaxBuckets))},
		{"burst", "", nonzero(units, func(l *policy.Limit) *int64 { return &l.Burst }, upTo(policy.MaxLimit))},
		{"min_conversion", "", percentage(func(l *policy.Limit) *int { return &l.MinConversion })},
		{"probe", "", parsed(func(l *policy.Limit) *time.Duration { return &l.Probe }, policy.ParseProbe)},
		{"until", "", word(func(l *policy.Limit) *policy.Until { return &l.Until })},
		{"shadow", "", yes(func(l *policy.Limit) *bool { return &l.Shadow })},
	}
	requestMembers = []member[policy.Limit]{
		{"from", "write from: request", readFrom},
		{"max", "give the largest limit that a request may bring, such as max: 1000",
			nonzero(units, func(l *policy.Limit) *int64 { return &l.Max }, upTo(policy.MaxLimit))},
		{"default", "give the limit of requests that bring none, such as default: 100, or 0, which denies them",
			units(func(l *policy.Limit) *int64 { return &l.Limit })},
	}
	consistencyMembers = []member[policy.Consistency]{
		{"write", "", parsed(func(c *policy.Consistency) *policy.Level { return &c.Write }, policy.ParseWriteLevel)},
		{"read", "", parsed(func(c *policy.Consistency) *policy.Level { return &c.Read }, policy.ParseReadLevel)},
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

func readConsistency(f *yamlfile.File, n *yamlfile.Node, policy *policy.Policy) {
	readMap(f, n, consistencyMembers, "write {write: LOCAL_QUORUM, read: LOCAL_QUORUM} or the like", &policy.Consistency)
}
