package agreement

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// Statement has the settings of an instance.
type Statement struct {
	ID       string            `json:"id"`   // of the process; it is not reused
	Name     string            `json:"name"` // for people
	HashKeys []HashKey         `json:"hash_keys,omitempty"`
	Settings map[string]string `json:"settings"` // by the name of the flag, or "envoy." and that of a domain
	Policies map[string]Policy `json:"policies"` // by name
}

// HashKey distinguishes hash keys without revealing the secret.
type HashKey struct {
	ID    string `json:"id"`
	Check string `json:"check"` // hexadecimal
}

// Policy is a policy in a Statement.
type Policy struct {
	Datacenter string            `json:"datacenter,omitempty"` // in which it is counted; empty: in the whole cluster
	Members    map[string]string `json:"members"`              // as in a file of policies
}

// Disagreement is a setting that has another value on another instance.
type Disagreement struct {
	Setting     string // such as "clock-tolerance", "policies.sms-send.limits" or "envoy.edge"
	Here, There string
	Instance    string // the other one
}

// SettingHashKey is the Setting of a Disagreement about hash keys.
const SettingHashKey = "hash-key-file"

// Values of the setting "policies": the source of an instance's policies.
const (
	PoliciesOfItsOwn = "its own"            // from --policies, or from a program that decides in its own process
	PoliciesOfStore  = "those in the store" // all instances that use it have the same
)

// checked is the text whose keyed digest is the check value of a hash key.
const checked = "ratelimitd: the hash key of all instances"

// checkLen is the length of a check value in bytes, enough to distinguish all keys.
const checkLen = 8

// HashKeysOf returns all in the form of statements, in their order. The instance hashes with the first.
func HashKeysOf(all []keys.HashKey) []HashKey {
	checks := make([]HashKey, len(all))
	for i, key := range all {
		mac := hmac.New(sha256.New, key.Secret)
		mac.Write([]byte(checked))
		checks[i] = HashKey{ID: key.ID, Check: hex.EncodeToString(mac.Sum(nil)[:checkLen])}
	}
	return checks
}

// PoliciesOf returns the policies of engine in the form of statements. datacenter is that of the instance.
func PoliciesOf(engine *limiter.Engine, datacenter string) map[string]Policy {
	said := make(map[string]Policy)
	for _, p := range engine.Policies() {
		one := Policy{Members: policyfile.Describe(*p)}
		if scope, _ := engine.Promise(p); scope == policy.ScopeDatacenter {
			one.Datacenter = datacenter
		}
		said[p.Name] = one
	}
	return said
}

// EnvoyOf returns the mapping of descriptors in the form of settings, with a check value for each domain. Check values of a
// domain are equal if both mappings select the same policies for the same callers.
func EnvoyOf(mapped *policyfile.Envoy) map[string]string {
	said := make(map[string]string)
	if mapped == nil {
		return said
	}
	for _, domain := range mapped.Domains {
		text := policyfile.FormatFile(policyfile.File{Envoy: &policyfile.Envoy{Domains: []policyfile.EnvoyDomain{domain}}})
		sum, descriptors := sha256.Sum256(text), 0
		domain.Each(func([]string, *policyfile.EnvoyDescriptor) { descriptors++ })
		said["envoy."+domain.Name] = fmt.Sprintf("descriptors: %d, check value %s", descriptors, hex.EncodeToString(sum[:checkLen]))
	}
	return said
}

// writes returns the key with which the instance hashes, the zero HashKey if there is none.
func (s *Statement) writes() HashKey {
	if len(s.HashKeys) == 0 {
		return HashKey{}
	}
	return s.HashKeys[0]
}

// reads reports whether the instance reads counts under key.
func (s *Statement) reads(key HashKey) bool {
	return key == s.writes() || slices.Contains(s.HashKeys, key)
}

// String returns k for people.
func (k HashKey) String() string {
	if k == (HashKey{}) {
		return "no key"
	}
	return fmt.Sprintf("key %s (check value %s)", k.ID, k.Check)
}

// hashKeys returns the disagreement of s and other about hash keys. They agree if each reads the counts that the other
// writes, as while a key is changed step by step.
func (s *Statement) hashKeys(other *Statement) []Disagreement {
	if s.reads(other.writes()) && other.reads(s.writes()) {
		return nil
	}
	return []Disagreement{{Setting: SettingHashKey, Here: s.writes().String(), There: other.writes().String(), Instance: other.Name}}
}

// compare returns the disagreements of s and other, in the order of settings. It ignores settings and policies that only
// one of them has.
func (s *Statement) compare(other *Statement) []Disagreement {
	found := s.hashKeys(other)
	for _, name := range sorted(s.Settings) {
		here := s.Settings[name]
		if there, known := other.Settings[name]; known && here != there {
			found = append(found, Disagreement{name, here, there, other.Name})
		}
	}
	for _, name := range sorted(s.Policies) {
		here := s.Policies[name]
		if there, known := other.Policies[name]; known && !apart(here.Datacenter, there.Datacenter) {
			found = append(found, here.compare("policies."+name, &there, other.Name)...)
		}
	}
	return found
}

// apart reports whether policies that are counted in these data centres are counted separately.
func apart(here, there string) bool { return here != "" && there != "" && here != there }

// compare returns the members of p and other that differ. A missing member is "-".
func (p *Policy) compare(path string, other *Policy, instance string) (found []Disagreement) {
	names := maps.Clone(p.Members)
	maps.Copy(names, other.Members)
	for _, name := range sorted(names) {
		if here, there := orNone(p.Members, name), orNone(other.Members, name); here != there {
			found = append(found, Disagreement{path + "." + name, here, there, instance})
		}
	}
	return found
}

func orNone(members map[string]string, name string) string {
	if value, known := members[name]; known {
		return value
	}
	return "-"
}
