package policyfile

import (
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Warnings returns a sentence for each valid setting that does less than its author may expect: limits that can never
// deny, unassigned numbers that pass, confirmations that cost nothing or never come.
func Warnings(file *File) (told []string) {
	policies := file.Policies
	byName := make(map[string]*policy.Policy, len(policies))
	for i := range policies {
		byName[policies[i].Name] = &policies[i]
	}
	for i := range policies {
		p := &policies[i]
		told = append(told, Idle(p)...)
		told = append(told, openNumbers(p)...)
		told = append(told, freeConfirmations(p, byName)...)
		told = append(told, manyProbes(p)...)
		told = append(told, derivedRequests(p, byName)...)
		told = append(told, idleBounds(p, policies, byName)...)
	}
	return append(told, envoyGetsNoReceipts(file, byName)...)
}

// converts reports whether a limit of p is a conversion.
func converts(p *policy.Policy) bool {
	return slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Algorithm == policy.Conversion.Name })
}

// envoyGetsNoReceipts warns of conversions and concurrent limits for Envoy, which confirms and releases nothing.
func envoyGetsNoReceipts(file *File, byName map[string]*policy.Policy) (told []string) {
	if file.Envoy == nil {
		return nil
	}
	asked := make(map[string]bool)
	for i := range file.Envoy.Domains {
		file.Envoy.Domains[i].Each(func(_ []string, e *EnvoyDescriptor) {
			p := byName[e.Policy]
			if p == nil || asked[p.Name] {
				return
			}
			asked[p.Name] = true
			all := []*policy.Policy{p}
			for _, d := range p.Derive {
				all = append(all, byName[d.Policy])
			}
			for _, of := range all {
				if converts(of) {
					told = append(told, fmt.Sprintf("policy %s: Envoy asks for it by %s, and confirms nothing, so all that is sent counts as "+
						"unconfirmed: use another algorithm than %s, or have the application take and confirm", of.Name, p.Name, policy.Conversion.Name))
				}
				if of.IsConcurrent() {
					told = append(told, fmt.Sprintf("policy %s: Envoy asks for it by %s, and releases nothing, so each unit counts until its "+
						"hold ends: use another algorithm than %s, or have the application take and release", of.Name, p.Name, policy.Concurrent.Name))
				}
			}
		})
	}
	return told
}

// idleBounds warns of conversions of p, which one other policy derives, that can never deny because limits for the same
// part in the same call admit too little.
func idleBounds(p *policy.Policy, policies []policy.Policy, byName map[string]*policy.Policy) (told []string) {
	by, from := derivedOnce(p.Name, policies)
	if by == nil || p.Count == policy.CountAll {
		return nil
	}
	var beside []*policy.Policy
	if from.From == policy.PartWhole {
		beside = append(beside, by)
	}
	for _, d := range by.Derive {
		if other := d.Policy; other != p.Name {
			if d.Policy = p.Name; d == from {
				beside = append(beside, byName[other])
			}
		}
	}
	for i := range p.Limits {
		b := p.Limits[i].WithDefaults()
		if b.Algorithm != policy.Conversion.Name {
			continue
		}
		if a, of := bounding(&b, beside); a != nil {
			told = append(told, fmt.Sprintf("policy %s: the limit %s can never deny: %s of %s admits %d units at most in its window: "+
				"write less than that, or remove it", p.Name, b.Name, a.Name, of, mostOf(a, &b)))
		}
	}
	return told
}

// bounding returns a limit of policies whose admitted units b never denies, and the name of its policy; nil if there is
// none.
func bounding(b *policy.Limit, policies []*policy.Policy) (a *policy.Limit, of string) {
	for _, p := range policies {
		if p.Mode != "" && p.Mode != policy.ModeEnforce {
			continue
		}
		for i := range p.Limits {
			if l := p.Limits[i].WithDefaults(); !l.Shadow && bounds(&l, b) {
				return &l, p.Name
			}
		}
	}
	return nil, ""
}

// derivedOnce returns the only policy that derives the policy of that name, and its derivation; nil if there is none,
// or several.
func derivedOnce(name string, policies []policy.Policy) (by *policy.Policy, from policy.Derivation) {
	for i := range policies {
		for _, d := range policies[i].Derive {
			if d.Policy != name {
				continue
			}
			if by != nil {
				return nil, from
			}
			by, from = &policies[i], d
		}
	}
	return by, from
}

// openNumbers warns if p restricts phone numbers, but admits unassigned ones.
func openNumbers(p *policy.Policy) (told []string) {
	if p.Countries.IsZero() && p.NumberTypes.IsZero() || !p.NumberTypes.Passes(policy.NumberTypeUnknown) {
		return nil
	}
	return []string{fmt.Sprintf("policy %s: it admits phone numbers of the type %s, in no range that their country gives out: "+
		"write number_types: {allow: [mobile]}, or deny %[2]s as well", p.Name, policy.NumberTypeUnknown)}
}

// manyProbes warns of a conversion that lets more probes pass in a window than units before it denies, because an
// attacker gets the probes.
func manyProbes(p *policy.Policy) (told []string) {
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Algorithm != policy.Conversion.Name || l.Probe == 0 {
			continue
		}
		if probes := int64(l.Window / l.Probe); probes > l.Limit {
			told = append(told, fmt.Sprintf("policy %s: limits[%d] lets %d probes pass in %s, beside %d units: write unconfirmed: %[5]d in "+
				"place of after and probe, or a rarer probe", p.Name, i, probes, policy.FormatWindow(l.Window), l.Limit))
		}
	}
	return told
}

// freeConfirmations warns of a policy whose units end with a confirmation, so that one number may have any number of
// codes, if it derives conversions, which depend on confirmations.
func freeConfirmations(p *policy.Policy, byName map[string]*policy.Policy) (told []string) {
	bounded := false // by a limit that a confirmation does not empty
	for i := range p.Limits {
		bounded = bounded || !p.Limits[i].GoesByConfirmation()
	}
	if bounded {
		return nil
	}
	for _, d := range p.Derive {
		if converts(byName[d.Policy]) {
			told = append(told, fmt.Sprintf("policy %s: no limit counts codes that are confirmed, so one caller may have as many as it "+
				"confirms, and %s depends on confirmations: give %[1]s a limit without until: confirmed", p.Name, d.Policy))
		}
	}
	return told
}
