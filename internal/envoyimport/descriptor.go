package envoyimport

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// descriptorKeys and limitKeys are all known keys.
var (
	descriptorKeys = []string{
		"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold",
		"metadata",
	}
	limitKeys = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
)

const day = 24 * time.Hour

// windows are the lengths of the units. All windows start at a multiple of their length
// since 1970, there as here.
var windows = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day,
}

const units = "second, minute, hour, day, week and month"

// step is a key and a value of a descriptor.
type step struct{ key, value string }

func (s step) String() string {
	if s.value == "" {
		return s.key
	}
	return s.key + "=" + s.value
}

// descriptors converts list; above are the steps that lead to it.
func (s *source) descriptors(list *yamlfile.Node, above []step) []policyfile.EnvoyDescriptor {
	if !s.f.Expect(list, yamlfile.List, "start each descriptor with - key:") {
		return nil
	}
	var made []policyfile.EnvoyDescriptor
	lines := make(map[step]int)
	for _, n := range list.Items {
		if !s.f.Expect(n, yamlfile.Map, "a descriptor has a key") {
			continue
		}
		s.expectKeys(n, descriptorKeys)
		at := step{s.text(n, "key"), s.text(n, "value")}
		first, twice := lines[at]
		switch {
		case at.key == "" && !s.f.Wrong(yamlfile.Join(n.Path, "key")):
			s.f.Add(n, "it has no key")
		case strings.Contains(at.key, "*"):
			s.f.Add(n.Member("key"), "a * in a key can't be kept: only values have one here")
		case twice:
			s.f.Add(n, "the same key and value as on line %d", first)
		}
		lines[at] = n.Line
		made = append(made, s.descriptor(n, append(slices.Clip(above), at)))
	}
	return made
}

// descriptor converts n, which is the last of path.
func (s *source) descriptor(n *yamlfile.Node, path []step) policyfile.EnvoyDescriptor {
	at := path[len(path)-1]
	d := policyfile.EnvoyDescriptor{Key: at.key, Value: at.value, Shared: s.flag(n, "share_threshold")}
	if d.Shared && !strings.Contains(at.value, "*") {
		s.f.Add(n.Member("share_threshold"), "it needs a * in the value")
	}
	limit := member(n, "rate_limit")
	if limit != nil {
		s.limit(limit, n, path, &d)
	}
	if below := member(n, "descriptors"); below != nil {
		d.Descriptors = s.descriptors(below, path)
	}
	s.warnOfLosses(n)
	if limit == nil && len(d.Descriptors) == 0 {
		s.warn(n, "it has no rate_limit, so its requests pass: kept as unlimited")
		d.Descriptors, d.Unlimited = nil, true
	}
	return d
}

// warnOfLosses adds warnings for members of n that are not kept, or have no effect.
func (s *source) warnOfLosses(n *yamlfile.Node) {
	for _, key := range []string{"detailed_metric", "value_to_metric"} {
		if s.flag(n, key) {
			s.warn(n.Member(key), "left out: metrics are by policy here, and never by values that were sent")
		}
	}
	if metadata := member(n, "metadata"); metadata != nil {
		s.warn(metadata, "left out: answers have no dynamic metadata here")
	}
	limit := member(n, "rate_limit")
	for _, key := range []string{"shadow_mode", "quota_mode"} {
		if s.flag(n, key) && (limit == nil || s.flag(limit, "unlimited")) {
			s.warn(n.Member(key), "left out: there is no limit here that it could change")
		}
	}
}

// limit converts n, the rate_limit of the descriptor of, into d.
func (s *source) limit(n, of *yamlfile.Node, path []step, d *policyfile.EnvoyDescriptor) {
	if !s.f.Expect(n, yamlfile.Map, "a rate_limit has a unit and requests_per_unit") {
		return
	}
	s.expectKeys(n, limitKeys)
	d.Name = s.text(n, "name")
	d.Replaces = s.replaces(n, d.Name)
	if s.flag(n, "unlimited") {
		d.Unlimited = true
		if unit := member(n, "unit"); unit != nil {
			s.unlimitedUnit(unit)
		}
		if requests := member(n, "requests_per_unit"); requests != nil {
			s.warn(requests, "left out: it says nothing beside unlimited")
		}
		return
	}
	p := policy.Policy{
		Name: s.policyName(path), Description: description(s.domain, path), Count: s.opts.Count,
		Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: s.requests(n), Window: s.window(n)}},
	}
	if s.flag(of, "shadow_mode") {
		p.Mode = policy.ModeShadow
	}
	d.Policy, d.Quota = p.Name, s.flag(of, "quota_mode")
	s.result.Policies = append(s.result.Policies, p)
}

// requests returns the limit of n.
func (s *source) requests(n *yamlfile.Node) int64 {
	written := member(n, "requests_per_unit")
	if written == nil {
		s.warn(n, "it has no requests_per_unit, which is 0 and denies always, there as here")
		return 0
	}
	// As YAML 1.1 has it, which is read there: 010 is 8, 0x10 is 16, 1_000 is 1000.
	count, err := strconv.ParseUint(strings.TrimPrefix(strings.ReplaceAll(written.Text, "_", ""), "+"), 0, 32)
	switch {
	case written.Kind == yamlfile.Broken:
	case err != nil || written.Kind != yamlfile.Number:
		s.f.Add(written, "it must be a whole number from 0 to %d", uint32(math.MaxUint32))
	case strconv.FormatUint(count, 10) != written.Text:
		s.warn(written, "%.64s is read as %d, there as here", written.Text, count)
	}
	return int64(count)
}

// unlimitedUnit warns of a unit beside unlimited.
func (s *source) unlimitedUnit(unit *yamlfile.Node) {
	name := strings.ToLower(unit.Text)
	if windows[name] > 0 || name == "year" {
		s.f.Add(unit, "an unlimited descriptor has no unit")
	} else {
		s.warn(unit, "left out: it is not a unit, and says nothing beside unlimited")
	}
}

// window returns the length of n's windows.
func (s *source) window(n *yamlfile.Node) time.Duration {
	unit := member(n, "unit")
	name := strings.ToLower(s.text(n, "unit"))
	switch window, known := windows[name]; {
	case known:
		return window
	case unit == nil:
		s.f.Add(n, "it has no unit: there are %s", units)
	case name == "year":
		s.f.Add(unit, "a year can't be kept: windows are of 31 days at most; write unit: month and a twelfth of the requests")
	case unit.Kind != yamlfile.Broken:
		s.f.Add(unit, "%.64q is not a unit: there are %s", name, units)
	}
	return 0
}

// replaces returns the names of the limits that n, which is called name, replaces.
func (s *source) replaces(n *yamlfile.Node, name string) (names []string) {
	list := member(n, "replaces")
	if list == nil || !s.f.Expect(list, yamlfile.List, "write a list of - name:") {
		return nil
	}
	for _, item := range list.Items {
		if !s.f.Expect(item, yamlfile.Map, "write name: and the name of a limit") {
			continue
		}
		s.expectKeys(item, []string{"name"})
		switch replaced := s.text(item, "name"); {
		case replaced == "":
			s.f.Add(item, "it names no limit")
		case replaced == name:
			s.f.Add(item, "a limit can't replace itself")
		case !s.limits[replaced]:
			s.warn(item, "left out: no limit of this domain is called %.64q", replaced)
		case !slices.Contains(names, replaced):
			names = append(names, replaced)
		}
	}
	return names
}

// maxName is the maximum length of the name of a policy.
const maxName = 63

// policyName returns a unique name for the policy of path, made of the letters and digits of the domain and the path.
func (s *source) policyName(path []step) string {
	name, parts := "limit", []string{s.domain}
	for _, at := range path {
		parts = append(parts, at.key, at.value)
	}
	for i, part := range parts {
		switch word := strings.Trim(strings.Map(nameRune, strings.ToLower(part)), "-._"); {
		case word == "":
		case i == 0:
			name = word
		default:
			name += "." + word
		}
	}
	if len(name) > maxName {
		name = name[:maxName]
	}
	unique := name
	for n := 2; s.names[unique]; n++ {
		suffix := "-" + strconv.Itoa(n)
		unique = name[:min(len(name), maxName-len(suffix))] + suffix
	}
	s.names[unique] = true
	return unique
}

func nameRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
		return r
	}
	return '-'
}

// maxDescription is the maximum length of a description; that of a policy may have 1024 bytes.
const maxDescription = 200

// description returns the description of a policy: the domain and the path.
func description(domain string, path []step) string {
	text := domain + ":"
	for _, at := range path {
		text += " " + at.String()
	}
	if len(text) > maxDescription {
		return fmt.Sprintf("%.*s…", maxDescription, text)
	}
	return text
}
