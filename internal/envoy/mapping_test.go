package envoy

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/clients/conformance"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// entriesOf returns entries of "key=value", with slashes between.
func entriesOf(text string) (entries []*pb.RateLimitDescriptor_Entry) {
	for part := range strings.SplitSeq(text, "/") {
		key, value, _ := strings.Cut(part, "=")
		entries = append(entries, &pb.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return entries
}

// FuzzMatches compares patterns with regular expressions.
func FuzzMatches(f *testing.F) {
	for _, seed := range [][2]string{
		{"a*", "abc"}, {"*", ""}, {"a*a", "a"}, {"a*b*c", "abbc"}, {"**", "x"}, {"a*bc*bc", "abc"}, {"*.x", "a.x\n"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		if !strings.Contains(pattern, "*") || !utf8.ValidString(pattern) || !utf8.ValidString(value) {
			return
		}
		literal := strings.Split(pattern, "*")
		for i := range literal {
			literal[i] = regexp.QuoteMeta(literal[i])
		}
		model := regexp.MustCompile(`(?s)\A` + strings.Join(literal, ".*") + `\z`)
		if got, want := matches(strings.Split(pattern, "*"), value), model.MatchString(value); got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, value, got, want)
		}
	})
}

// TestOrderOfPatterns holds that the first pattern of the file that matches is used, whatever its length, and only
// after values.
func TestOrderOfPatterns(t *testing.T) {
	m := newMapping(&policyfile.Envoy{Domains: []policyfile.EnvoyDomain{{Name: "d", Descriptors: []policyfile.EnvoyDescriptor{
		{Key: "k", Policy: "any"}, {Key: "k", Value: "a*", Policy: "first"}, {Key: "k", Value: "ab*", Policy: "second"},
		{Key: "k", Value: "ab**", Policy: "written"}, {Key: "k", Value: "abc", Policy: "exact"},
		{Key: "l", Value: "*", Policy: "star"}, {Key: "l", Policy: "never"},
	}}}})
	for text, want := range map[string]string{
		"k=abc": "exact", "k=ab*": "second", "k=ab**": "written", "k=abd": "first", "k=a": "first", "k=b": "any", "k=": "any",
		"l=": "star", "l=x": "star",
	} {
		if got := m.domains["d"].find(entriesOf(text)); got == nil || got.policy != want {
			t.Errorf("%s: found %+v, want %s", text, got, want)
		}
	}
}

// FuzzIdentifier holds that identifiers have a permitted length, and that different descriptors have different ones.
func FuzzIdentifier(f *testing.F) {
	for _, seed := range [][4]string{{"a", "b/c", "a/b", "c"}, {"", "=", "=", ""}, {"%2F", "x", "/", "x"}, {"a", "", "", "a"}} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Add(strings.Repeat("x", 2000), "y", strings.Repeat("x", 2000), "z")
	all := newMapping(&policyfile.Envoy{Domains: []policyfile.EnvoyDomain{{Name: "d/", Descriptors: []policyfile.EnvoyDescriptor{
		{Key: "k", Descriptors: []policyfile.EnvoyDescriptor{
			{Key: "l", Policy: "p"}, {Key: "m", Policy: "p", Identifier: []string{"m", "k"}},
			{Key: "n", Policy: "p", Identifier: []string{"n"}},
		}},
	}}}})
	of := func(key, first, second string) keys.Identifier {
		entries := []*pb.RateLimitDescriptor_Entry{{Key: "k", Value: first}, {Key: key, Value: second}}
		return all.domains["d/"].find(entries).identifier(entries)
	}
	f.Fuzz(func(t *testing.T, first, second, otherFirst, otherSecond string) {
		same := first == otherFirst && second == otherSecond
		for _, key := range []string{"l", "m", "n"} {
			one, other := of(key, first, second), of(key, otherFirst, otherSecond)
			if len(one) == 0 || len(one) > keys.MaxIdentifierLen {
				t.Errorf("%s: %d bytes", key, len(one))
			}
			if key == "n" { // the value alone: what stands for an empty or a long one could be sent, too
				same = second == otherSecond
				if one == other && !same && !strings.HasPrefix(string(one), "%") {
					t.Errorf("n: %q and %q are one", second, otherSecond)
				}
				continue
			}
			if (one == other) != same {
				t.Errorf("%s: %q, %q and %q, %q: the same: %v", key, first, second, otherFirst, otherSecond, !same)
			}
		}
	})
}

// TestAddresses holds that requests count for the callers in the table of addresses.
func TestAddresses(t *testing.T) {
	m := newMapping(&policyfile.Envoy{Domains: []policyfile.EnvoyDomain{{Name: "edge", Descriptors: []policyfile.EnvoyDescriptor{
		{Key: "remote_address", Policy: "p", Identifier: []string{"remote_address"}},
		{Key: "generic_key", Descriptors: []policyfile.EnvoyDescriptor{{Key: "remote_address", Policy: "p"}}},
	}}}})
	for _, c := range conformance.Addresses(t) {
		alone := []*pb.RateLimitDescriptor_Entry{{Key: "remote_address", Value: c.Address}}
		if got := m.domains["edge"].find(alone).identifier(alone); string(got) != c.Caller {
			t.Errorf("%s is %s, want %s: %s", c.Address, got, c.Caller, c.Why)
		}
		keyed := append([]*pb.RateLimitDescriptor_Entry{{Key: "generic_key", Value: "login"}}, alone...)
		want := "edge/generic_key=login/remote_address=" + strings.ReplaceAll(c.Caller, "/", "%2F")
		if got := m.domains["edge"].find(keyed).identifier(keyed); string(got) != want {
			t.Errorf("%s is %s, want %s: %s", c.Address, got, want, c.Why)
		}
	}
}

// TestIdentifiers holds the forms that the docs promise, by which operators can reset and explain.
func TestIdentifiers(t *testing.T) {
	m := newMapping(&policyfile.Envoy{Domains: []policyfile.EnvoyDomain{{Name: "edge", Descriptors: []policyfile.EnvoyDescriptor{
		{Key: "address", Policy: "p"}, {Key: "path", Value: "/files/*", Policy: "p", Shared: true},
		{Key: "user", Policy: "p", Identifier: []string{"user"}},
		{Key: "a", Value: "x*", Shared: true, Descriptors: []policyfile.EnvoyDescriptor{
			{Key: "b", Descriptors: []policyfile.EnvoyDescriptor{
				{Key: "a", Policy: "p", Identifier: []string{"a", "b"}}, {Key: "c", Policy: "p"},
				{Key: "b", Policy: "p", Identifier: []string{"b"}},
			}},
		}},
	}}}})
	for _, test := range []struct {
		entries []string
		want    string
	}{
		{[]string{"address", "192.0.2.1"}, "edge/address=192.0.2.1"},
		{[]string{"address", "100%/="}, "edge/address=100%25%2F%3D"},
		{[]string{"address", ""}, "edge/address="},
		{[]string{"path", "/files/a"}, "edge/path=%2Ffiles%2F*"},
		{[]string{"user", "a/b"}, "a/b"},
		{[]string{"user", ""}, "%empty"},
		{[]string{"user", strings.Repeat("x", 1024)}, strings.Repeat("x", 1024)},
		{[]string{"user", strings.Repeat("x", 1025)}, longPrefix},
		{[]string{"a", "x1", "b", "2", "a", "3"}, "a=3/b=2"},
		{[]string{"a", "x1", "b", "2", "b", "3"}, "3"},
		{[]string{"a", "x1", "b", "2", "c", "3"}, "edge/a=x*/b=2/c=3"},
	} {
		var entries []*pb.RateLimitDescriptor_Entry
		for i := 0; i < len(test.entries); i += 2 {
			entries = append(entries, &pb.RateLimitDescriptor_Entry{Key: test.entries[i], Value: test.entries[i+1]})
		}
		got := string(m.domains["edge"].find(entries).identifier(entries))
		if test.want == longPrefix {
			if len(got) != len(longPrefix)+64 || !strings.HasPrefix(got, longPrefix) {
				t.Errorf("%d bytes: got %s", len(test.entries[1]), got)
			}
		} else if got != test.want {
			t.Errorf("%.40q: got %.80q, want %.80q", test.entries, got, test.want)
		}
	}
}
