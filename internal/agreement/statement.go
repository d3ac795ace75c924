package agreement

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// Statement has the settings of an instance.
type Statement struct {
	ID       string            `json:"id"`   // of the process; never used again
	Name     string            `json:"name"` // that people know it by
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
	Datacenter string            `json:"datacenter,omitempty"` // within which it is counted; empty: in all of the cluster
	Members    map[string]string `json:"members"`              // as a file of policies has them
}

// Disagreement is a setting of which another instance has another value.
type Disagreement struct {
	Setting     string // "clock-tolerance", "policies.sms-send.limits", "envoy.edge"
	Here, There string
	Instance    string // the other one
}

// SettingHashKey is the Setting of a Disagreement about hash keys.
const SettingHashKey = "hash-key-file"

// Where policies are from, as the setting "policies" says it.
const (
	PoliciesOfItsOwn = "its own"            // of --policies, or of a program that decides in its own process
	PoliciesOfStore  = "those in the store" // which has all instances that follow it agree
)

// checked is the text whose keyed digest is a hash key's check value.
const checked = "ratelimitd: the hash key of all instances"

// checkLen is the length of a check value in bytes: enough for no two keys to have the same.
const checkLen = 8

// HashKeysOf returns all as statements have them, in their order: the first is written with.
func HashKeysOf(all []keys.HashKey) []HashKey {
	checks := make([]HashKey, len(all))
	for i, key := range all {
		mac := hmac.New(sha256.New, key.Secret)
		mac.Write([]byte(checked))
		checks[i] = HashKey{ID: key.ID, Check: hex.EncodeToString(mac.Sum(nil)[:checkLen])}
	}
	return checks
}

// PoliciesOf returns the statement, by an instance in datacenter, about the policies of its engine.
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

// EnvoyOf returns the mapping of descriptors of an instance that serves Envoy, as settings: of
// each domain a check value. Two of a domain are equal if both ask the same policies for the same callers.
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

// writes returns the key that the instance hashes with; the zero HashKey: none.
func (s *Statement) writes() HashKey {
	if len(s.HashKeys) == 0 {
		return HashKey{}
	}
	return s.HashKeys[0]
}

// reads reports whether the instance sees counts under key.
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

// hashKeys returns how s and other disagree about hash keys. While keys are changed step by step,
// each reads what the other one writes: then they agree.
func (s *Statement) hashKeys(other *Statement) []Disagreement {
	if s.reads(other.writes()) && other.reads(s.writes()) {
		return nil
	}
	return []Disagreement{{Setting: SettingHashKey, Here: s.writes().String(), There: other.writes().String(), Instance: other.Name}}
}

// compare returns how s and other disagree, in the order of settings. Settings and policies that
// only one of them has are none of the other's.
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

// apart reports whether policies that are counted within these data centres are counted apart.
func apart(here, there string) bool { return here != "" && there != "" && here != there }

// compare returns the members of p and other that differ. One that only one of them has is "-" in
// the other.
func (p *Policy) compare(path string, other *Policy, instance string) (found []Disagreement) {
	names := make(map[string]string, len(p.Members))
	for _, members := range []map[string]string{p.Members, other.Members} {
		for name := range members {
			names[name] = ""
		}
	}
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
