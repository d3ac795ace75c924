// Package envoyimport converts the YAML configuration of envoyproxy/ratelimit to a file of policies, by which an Envoy
// gets the same answers.
//
// Settings without an equivalent are reported with their lines: as mistakes if answers would differ, as warnings if
// only metrics or metadata would. It knows the format of envoyproxy/ratelimit of July 2026, but not its environment
// variables.
package envoyimport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Source is a file to convert.
type Source struct {
	Name string // as warnings and mistakes name it
	Data []byte
}

// Options of Convert.
type Options struct {
	// Count says which attempts use quota. In envoyproxy/ratelimit, denied ones do. If no request has more than one hit,
	// both decide alike, because windows are fixed. Zero: policy.CountAll.
	Count policy.CountMode
}

// Convert returns the policies of sources, which have different domains, and warnings about parts that were left out.
// The error is yamlfile.Errors for the first source with mistakes.
func Convert(sources []Source, opts Options) (file policyfile.File, warnings yamlfile.Errors, err error) {
	opts.Count = cmp.Or(opts.Count, policy.CountAll)
	c := &conversion{opts: opts, names: make(map[string]bool), domains: make(map[string]string)}
	c.result.Envoy = new(policyfile.Envoy)
	for _, source := range sources {
		if err := c.add(source); err != nil {
			return policyfile.File{}, nil, err
		}
	}
	if len(c.result.Policies) == 0 {
		return policyfile.File{}, nil, fmt.Errorf("%s: there is no limit in it, and so no policy to make", sources[len(sources)-1].Name)
	}
	if _, err := policyfile.ParseFile("the result", policyfile.FormatFile(c.result)); err != nil {
		return policyfile.File{}, nil, err // it is larger or deeper than a file may be
	}
	return c.result, c.warnings, nil
}

// conversion has the result so far.
type conversion struct {
	opts     Options
	result   policyfile.File
	names    map[string]bool   // of the policies
	domains  map[string]string // where each domain was, as in "FILE:LINE"
	warnings yamlfile.Errors
}

// source is a file that is being converted.
type source struct {
	*conversion
	f      *yamlfile.File
	domain string
	limits map[string]bool // names of the domain's limits
}

func (c *conversion) add(from Source) error {
	before := len(c.warnings)
	defer func() {
		slices.SortStableFunc(c.warnings[before:], func(a, b yamlfile.Error) int { return cmp.Compare(a.Line, b.Line) })
	}()
	s := &source{conversion: c, f: yamlfile.ParseForeign(from.Name, from.Data), limits: make(map[string]bool)}
	switch {
	case s.f.Root == nil && s.f.Err() == nil:
		s.f.AddAt(yamlfile.Position{Line: 1}, "", "there is nothing in this file: it needs a domain and descriptors")
	case s.f.Root != nil && isManifest(s.f.Root):
		return s.manifests(append([]*yamlfile.Node{s.f.Root}, s.f.More...))
	case s.f.Root != nil:
		s.root(s.f.Root)
		for _, ignored := range s.f.More {
			s.warn(ignored, "left out: of several documents in a file only the first is read, there as here")
		}
	}
	return s.f.Err()
}

// warn adds a warning of a part that was left out.
func (s *source) warn(n *yamlfile.Node, format string, args ...any) {
	s.warnings = append(s.warnings, yamlfile.Error{
		File: s.f.Name, Position: n.Position, Path: n.Path, Message: fmt.Sprintf(format, args...),
	})
}

func (s *source) root(n *yamlfile.Node) {
	if !s.f.Expect(n, yamlfile.Map, "a file has a domain and descriptors") {
		return
	}
	s.expectKeys(n, []string{"domain", "descriptors"})
	s.domain = s.text(n, "domain")
	switch first, twice := s.domains[s.domain]; {
	case s.domain == "" && !s.f.Wrong("domain"):
		s.f.AddAt(n.Position, "domain", "missing or empty: every file is of a domain")
	case twice:
		s.f.Add(n.Member("domain"), "%q is the domain of %s too: put the descriptors of both into one file", s.domain, first)
	}
	s.domains[s.domain] = fmt.Sprintf("%s:%d", s.f.Name, n.Find("domain").Line)
	descriptors := member(n, "descriptors")
	if descriptors == nil {
		s.warn(n, "there are no descriptors: all requests of this domain pass, here as there")
		return
	}
	s.collectNames(descriptors)
	made := s.descriptors(descriptors, nil)
	if len(made) > 0 {
		s.result.Envoy.Domains = append(s.result.Envoy.Domains, policyfile.EnvoyDomain{Name: s.domain, Descriptors: made})
	}
}

// collectNames collects the names of all limits, since one may be replaced before it is defined.
func (s *source) collectNames(list *yamlfile.Node) {
	for _, item := range list.Items {
		if limit := member(item, "rate_limit"); limit != nil && limit.Member("name") != nil {
			s.limits[limit.Member("name").Text] = true
		}
		if below := member(item, "descriptors"); below != nil {
			s.collectNames(below)
		}
	}
}

// everyKey has all known keys. envoyproxy/ratelimit ignores those in the wrong place.
var everyKey = slices.Concat([]string{"domain"}, descriptorKeys, limitKeys)

// expectKeys adds a mistake for each unknown key of n, and a warning for those in the wrong place.
func (s *source) expectKeys(n *yamlfile.Node, known []string) {
	for _, m := range n.Members {
		if !slices.Contains(known, m.Key) && slices.Contains(everyKey, m.Key) {
			s.warn(m.Value, "left out: it says nothing in this place, there as here")
		}
	}
	s.f.ExpectKeys(n, slices.Concat(known, everyKey))
}

// member returns the value under key, nil if n has none or null, which mean the same.
func member(n *yamlfile.Node, key string) *yamlfile.Node {
	if value := n.Member(key); value != nil && value.Kind != yamlfile.Null {
		return value
	}
	return nil
}

// text returns the member key of n as text, as envoyproxy/ratelimit decodes it: numbers and booleans as they are
// written.
func (s *source) text(n *yamlfile.Node, key string) string {
	value := member(n, key)
	if value == nil {
		return ""
	}
	switch value.Kind {
	case yamlfile.Number, yamlfile.Bool:
	default:
		s.f.Expect(value, yamlfile.Text, "write text")
	}
	return value.Text
}

// yes and no are further words for true and false in YAML 1.1, which envoyproxy/ratelimit reads.
var (
	yes = []string{"y", "yes", "on"}
	no  = []string{"n", "no", "off"}
)

// flag reports whether the member key of n is true.
func (s *source) flag(n *yamlfile.Node, key string) bool {
	value := member(n, key)
	if value == nil || s.f.Wrong(value.Path) {
		return false
	}
	word := strings.ToLower(value.Text)
	if value.Kind == yamlfile.Text && !value.Quoted && (slices.Contains(yes, word) || slices.Contains(no, word)) {
		return slices.Contains(yes, word)
	}
	return s.f.Expect(value, yamlfile.Bool, "write true or false") && word == "true"
}
