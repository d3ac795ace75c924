package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Policy is a named set of limits that are applied together, and how they are counted. The zero value of every field
// but Name and Limits is its default.
type Policy struct {
	Name         string       // [a-z0-9][a-z0-9._-]{0,62}
	Description  string       // for people; at most 1024 bytes
	Limits       []Limit      // 1 to MaxLimits; all must admit
	Count        CountMode    // attempts that count; zero: CountAdmitted
	Counting     Counting     // how a shared store keeps the units of windows; zero: CountingRows
	Guarantee    Guarantee    // zero: GuaranteeCounted
	WriteFrom    int          `json:",omitzero"` // under GuaranteeLocal: percent of the smallest limit below which a key is not written
	Consistency  Consistency  // empty levels mean the server's default
	Mode         Mode         // zero: ModeEnforce
	OnStoreError OnStoreError // zero: OnStoreErrorDeny
	Normalize    Normalize    // the canonical form of identifiers; zero: they are used as they are
	Derive       []Derivation // other policies that a demand counts under; at most MaxDemands - 1, no policy twice
	Countries    Choice       `json:",omitzero"` // of phone numbers that may pass: two letters such as DE, or a code such as +800
	NumberTypes  Choice       `json:",omitzero"` // of phone numbers that may pass: names of NumberTypes

	// BlockFor is how long a denied take blocks its key, in whole milliseconds from MinWindow to MaxWindow; zero: it does
	// not. A block that follows another one within BlockMax lasts BlockFactor times as long, up to BlockMax.
	BlockFor    time.Duration
	BlockFactor int           // 1 to MaxBlockFactor; zero: 1, so blocks do not grow
	BlockMax    time.Duration // BlockFor to MaxWindow; zero: BlockFor
}

// Bounds of a policy's fields.
const (
	MaxLimits         = 16      // of one policy: each costs a row or a counter in every decision
	MaxDemands        = 16      // of one call, including derived ones: each costs a read and a write
	maxDescriptionLen = 1 << 10 // bytes; it travels in GET /v1/policies
	MaxBlockFactor    = 10      // growth of blocks in a row: six such steps lead from a second to eleven days
	MaxWriteFrom      = 50      // percent: an owner that dies forgets up to this share of each key's limit
)

// CountMode says which attempts count.
type CountMode string

// The values of CountMode.
const (
	CountAdmitted CountMode = "admitted" // only admitted and recorded attempts
	CountAll      CountMode = "all"      // denied attempts as well
)

// Counting is the way in which a shared store keeps the units of windows. If a policy changes it, its windows count
// from zero. Logs and buckets are kept in one way only.
type Counting string

// The values of Counting.
const (
	CountingCounters Counting = "counters" // one counter per window that all instances add to
	CountingRows     Counting = "rows"     // a running total per window and instance, which expires by itself
)

// Guarantee bounds the units that pass when several instances decide at once. docs/guarantees.md states each; the
// proofs are in docs/design.
type Guarantee string

// The values of Guarantee.
const (
	GuaranteeCounted Guarantee = "counted" // write, then count: never more than the limit
	GuaranteeLocal   Guarantee = "local"   // decide from memory: fastest, may pass the limit by a stated bound
)

// Mode is how a policy's verdicts are applied.
type Mode string

// The values of Mode.
const (
	ModeEnforce Mode = "enforce" // the verdict decides
	ModeShadow  Mode = "shadow"  // decides, counts and reports, always allows
	ModeOff     Mode = "off"     // neither decides nor counts, always allows
)

// OnStoreError is a policy's behaviour while the store does not answer.
type OnStoreError string

// The values of OnStoreError.
const (
	OnStoreErrorDeny  OnStoreError = "deny"  // calls fail with an error that wraps ErrUnavailable
	OnStoreErrorAllow OnStoreError = "allow" // calls are allowed, marked as degraded
	OnStoreErrorLocal OnStoreError = "local" // this instance's own counts decide, marked as degraded
)

// Problem is one mistake in a policy.
type Problem struct {
	Path    string // of the field, relative to the policy: "limits[0].window"; empty: the policy itself
	Message string // what is wrong and what would be right
}

// Error returns the path and the message.
func (p Problem) Error() string {
	if p.Path == "" {
		return p.Message
	}
	return p.Path + ": " + p.Message
}

var (
	policyName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)
	limitName  = policyName
)

const nameRule = "1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"

// WithDefaults returns a copy of p with every default filled in, limits too.
func (p Policy) WithDefaults() Policy {
	setDefault(&p.Count, CountAdmitted)
	setDefault(&p.Guarantee, GuaranteeCounted)
	setDefault(&p.Counting, CountingRows)
	setDefault(&p.Mode, ModeEnforce)
	setDefault(&p.OnStoreError, OnStoreErrorDeny)
	if p.BlockFor != 0 {
		p.BlockFactor, p.BlockMax = cmp.Or(p.BlockFactor, 1), cmp.Or(p.BlockMax, p.BlockFor)
	}
	limits := make([]Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = l.WithDefaults()
	}
	p.Limits = limits
	derive := p.Derive
	p.Derive = nil
	for _, d := range derive {
		p.Derive = append(p.Derive, d.WithDefaults())
	}
	return p
}

// Problems returns all problems of p, none if it is valid. Defaults need not be filled in.
func (p Policy) Problems() []Problem {
	p = p.WithDefaults()
	var found problems
	if !policyName.MatchString(p.Name) {
		found.add("name", "%q is not a policy name: use %s", p.Name, nameRule)
	}
	if len(p.Description) > maxDescriptionLen {
		found.add("description", "%d bytes long: at most %d", len(p.Description), maxDescriptionLen)
	}
	oneOf(&found, "count", p.Count, CountAdmitted, CountAll)
	oneOf(&found, "counting", p.Counting, CountingCounters, CountingRows)
	oneOf(&found, "mode", p.Mode, ModeEnforce, ModeShadow, ModeOff)
	oneOf(&found, "on_store_error", p.OnStoreError, OnStoreErrorDeny, OnStoreErrorAllow, OnStoreErrorLocal)
	p.checkGuarantee(&found)
	p.checkLevels(&found)
	p.checkCount(&found)
	p.checkKept(&found)
	p.checkConcurrent(&found)
	p.checkLimits(&found)
	p.checkRequest(&found)
	p.checkConfirmed(&found)
	p.checkBlock(&found)
	p.checkNormalize(&found)
	p.checkNumbers(&found)
	return found
}

// checkGuarantee refuses policies whose guarantee can't be kept, instead of keeping a weaker one under the same name.
func (p Policy) checkGuarantee(found *problems) {
	p.checkWriteFrom(found)
	if p.Guarantee == "serial" {
		found.add("guarantee", "serial is gone, since owners deny nobody while there is room: delete the line")
		return
	}
	oneOf(found, "guarantee", p.Guarantee, GuaranteeCounted, GuaranteeLocal)
}

// checkKept refuses buckets and conversions beside limits that are stored in another way.
func (p Policy) checkKept(found *problems) {
	in := slices.IndexFunc(p.Limits, Limit.InCell)
	other := slices.IndexFunc(p.Limits, func(l Limit) bool {
		_, known := AlgorithmByName(l.Algorithm)
		return known && !l.InCell()
	})
	if in >= 0 && other >= 0 {
		found.add(pathOf(in)+".algorithm", "a %[1]s can't stand beside limits[%[2]d], a %[3]s: put the %[1]s into a policy of its own and "+
			"name both in the call, or derive it from: whole", p.Limits[in].Algorithm, other, p.Limits[other].Algorithm)
	}
}

// checkWriteFrom refuses write_from under guarantees that don't write behind, and for limits in cells: a
// bucket drains before its units are written, and a conversion would forget confirmations.
func (p Policy) checkWriteFrom(found *problems) {
	if p.WriteFrom == 0 {
		return
	}
	if p.WriteFrom < 1 || p.WriteFrom > MaxWriteFrom {
		found.add("write_from", "%d%% is out of range: use 1%% to %d%%, such as 10%%", p.WriteFrom, MaxWriteFrom)
	}
	if p.Guarantee != GuaranteeLocal {
		found.add("write_from", "under guarantee %q every unit is written before it is admitted: remove write_from, or use guarantee %q",
			p.Guarantee, GuaranteeLocal)
		return
	}
	if i := slices.IndexFunc(p.Limits, Limit.InCell); i >= 0 {
		found.add("write_from", "it is for logs, windows and tails, and limits[%d] is a %s: remove write_from, or use another algorithm",
			i, p.Limits[i].Algorithm)
	}
}

// checkCount refuses to count denied attempts in a bucket, which would never drain while callers retry.
func (p Policy) checkCount(found *problems) {
	if p.Count != CountAll {
		return
	}
	if i := slices.IndexFunc(p.Limits, Limit.InCell); i >= 0 {
		found.add("count", "%q has no meaning for limits[%d], a %s: use %q, or another algorithm",
			CountAll, i, p.Limits[i].Algorithm, CountAdmitted)
	}
}

func (p Policy) checkLevels(found *problems) {
	if p.Consistency.Write != "" {
		if _, err := ParseWriteLevel(string(p.Consistency.Write)); err != nil {
			found.add("consistency.write", "%v", err)
		}
	}
	if p.Consistency.Read != "" {
		if _, err := ParseReadLevel(string(p.Consistency.Read)); err != nil {
			found.add("consistency.read", "%v", err)
		}
	}
	if p.Consistency.Write != LevelAny {
		return
	}
	for i, l := range p.Limits {
		if a, ok := AlgorithmByName(l.Algorithm); ok && a.Memory != MemoryEvents {
			found.add("consistency.write", "ANY is for policies of sliding logs only, and limits[%d] is a %s: use ONE or stronger", i, l.Algorithm)
			return
		}
	}
}

func (p Policy) checkLimits(found *problems) {
	if len(p.Limits) == 0 || len(p.Limits) > MaxLimits {
		found.add("limits", "%d limits: a policy needs 1 to %d", len(p.Limits), MaxLimits)
	}
	names := make(map[string]int, len(p.Limits))
	for i, l := range p.Limits {
		path := pathOf(i)
		l.check(path, found)
		if first, twice := names[l.Name]; twice {
			found.add(path+".name", "%q names limits[%d] too: give each limit a name of its own", l.Name, first)
			continue
		}
		names[l.Name] = i
	}
	denies := func(l Limit) bool { return !l.Shadow || l.InCell() } // a bucket in shadow is a problem of its own
	if len(p.Limits) > 0 && !slices.ContainsFunc(p.Limits, denies) {
		found.add("limits", "all of them are shadow, and nothing would be denied: remove shadow from the limits and give the policy "+
			"mode: shadow, or add the limit that is enforced")
	}
}

func pathOf(limit int) string { return fmt.Sprintf("limits[%d]", limit) }

// InCells reports whether p's limits are kept in cells. Either all of them are, or none.
func (p Policy) InCells() bool { return slices.ContainsFunc(p.Limits, Limit.InCell) }

// LongestWindow returns the longest time that a window of the policy's limits can last.
func (p Policy) LongestWindow() time.Duration {
	longest := time.Duration(0)
	for _, l := range p.Limits {
		longest = max(longest, l.Longest())
	}
	return longest
}

// problems collects the mistakes of one policy in the order in which they are found.
type problems []Problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Message: fmt.Sprintf(format, args...)})
}

func oneOf[T ~string](found *problems, path string, got T, want ...T) {
	if !slices.Contains(want, got) {
		found.add(path, "%q is not known: use one of %s", got, joined(want, ", "))
	}
}

// joined returns names with separator between them.
func joined[T ~string](names []T, separator string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, separator)
}

func setDefault[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}
