package policy

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Form is a canonical form of identifiers, so that different spellings of one identifier count as one.
type Form string

// The values of Form.
const (
	FormE164      Form = "e164"      // phone numbers, as +4915112345678
	FormEmail     Form = "email"     // addresses of mail, in lower case
	FormIP        Form = "ip"        // IP addresses
	FormIPv6Net   Form = "ipv6-64"   // IP addresses; those of IPv6 as their network of 64 bits
	FormLowercase Form = "lowercase" // any text, in lower case
)

// Normalize is the canonical form to which a policy's identifiers are converted first. If a policy changes it,
// identifiers whose form changes count from zero. The zero Normalize leaves them as they are.
type Normalize struct {
	Form    Form
	Region  string // of e164: two letters of the country whose numbers need no country code; empty: all need one
	Mailbox bool   // of email: addresses of the same mailbox count as one
}

// Part is a part of a canonical identifier that is counted by itself.
type Part string

// The values of Part.
const (
	PartCountry  Part = "country"   // of e164: the region as two letters, such as DE; else the code, such as +800
	PartPrefix   Part = "prefix"    // of e164: its first digits, such as +49151
	PartCarrier  Part = "carrier"   // of e164: the country and the carrier of the range, such as DE/Vodafone; else UnknownCarrier
	PartDomain   Part = "domain"    // of email
	PartIPPrefix Part = "ip-prefix" // of ip and ipv6-64: a network, such as 203.0.113.0/24
	PartWhole    Part = "whole"     // of any form: the identifier itself
)

// UnknownCarrier is the carrier of numbers whose range has no known carrier.
const UnknownCarrier = "unknown"

// When says in which of a call's attempts a derivation counts. The zero When means all.
type When string

// The values of When. Both apply only to calls that derived conversions alone deny: such a call is decided anew, without
// these conversions, and counts under other limits instead.
const (
	WhenKnown  When = "known"  // if the part was in a confirmed call within KnownFor
	WhenDenied When = "denied" // if no part is known
)

// KnownFor is how long after a confirmation the parts of its call are known.
const KnownFor = 90 * 24 * time.Hour

// Derivation adds to each demand of a policy one for as many units of another policy, for a part of its identifier.
type Derivation struct {
	Policy   string // a policy in force that has no derivations of its own
	From     Part
	Digits   int  // of a prefix: 1 to MaxDigits
	IPv4Bits int  // of a prefix of IP addresses: 1 to 32
	IPv6Bits int  // 1 to 128, under ipv6-64 to 64; zero: DefaultIPv6Bits
	When     When `json:",omitempty"` // zero: always
}

// Bounds and defaults of a Derivation.
const (
	MaxDigits       = 14 // one less than the longest number has
	MaxIPv4Bits     = 32
	MaxIPv6Bits     = 128
	DefaultIPv6Bits = 48 // a provider or a site; a customer with a /56 has all of its /64
	subnetBits      = 64
	maxDerived      = MaxDemands - 1
)

// Found is the result of reading an identifier, besides its canonical form.
type Found struct {
	Parts   []string // one for each derivation
	Refused Reason   // the rule about numbers that denies it; empty: none does
}

// ReadIdentifier returns the canonical form of an identifier, its parts, and whether a rule about numbers denies it. The
// error says what would be right, and repeats nothing of the text.
type ReadIdentifier func(text string) (canonical string, found Found, err error)

// Identifiers returns the reader of a policy's identifiers, by its Normalize, Derive, Countries and NumberTypes; package
// identifier implements it. The error names the value that can't be used, such as an unknown region. It may be a Problem
// with a path.
type Identifiers func(*Policy) (ReadIdentifier, error)

// parts maps all parts to the forms that have them.
var parts = map[Part][]Form{
	PartCountry:  {FormE164},
	PartPrefix:   {FormE164},
	PartCarrier:  {FormE164},
	PartDomain:   {FormEmail},
	PartIPPrefix: {FormIP, FormIPv6Net},
	PartWhole:    {"", FormE164, FormEmail, FormIP, FormIPv6Net, FormLowercase},
}

var regionCode = regexp.MustCompile(`^[A-Z]{2}$`)

// WithDefaults returns d with every default filled in.
func (d Derivation) WithDefaults() Derivation {
	if d.From == PartIPPrefix && d.IPv6Bits == 0 {
		d.IPv6Bits = DefaultIPv6Bits
	}
	return d
}

// checkNormalize adds the problems of p's forms and derivations.
func (p Policy) checkNormalize(found *problems) {
	n := p.Normalize
	if n.Form != "" {
		oneOf(found, "normalize", n.Form, FormE164, FormEmail, FormIP, FormIPv6Net, FormLowercase)
	}
	if n.Region != "" && (n.Form != FormE164 || !regionCode.MatchString(n.Region)) {
		found.add("normalize", "a region is two capital letters such as DE, and for e164 only")
	}
	if n.Mailbox && n.Form != FormEmail {
		found.add("normalize", "mailbox is for email only")
	}
	if len(p.Derive) > maxDerived {
		found.add("derive", "%d derivations: use at most %d", len(p.Derive), maxDerived)
	}
	for i := range p.Derive {
		p.checkDerivation(found, fmt.Sprintf("derive[%d]", i), i)
	}
}

func (p Policy) checkDerivation(found *problems, path string, i int) {
	d := p.Derive[i].WithDefaults()
	switch {
	case !policyName.MatchString(d.Policy):
		found.add(path+".policy", "%q is not a policy name: use %s", d.Policy, nameRule)
	case d.Policy == p.Name:
		found.add(path+".policy", "%q is the policy itself: name another one", d.Policy)
	case slices.ContainsFunc(p.Derive[:i], func(o Derivation) bool { return o.Policy == d.Policy }):
		found.add(path+".policy", "%q is derived already: give each part a policy of its own", d.Policy)
	}
	oneOf(found, path+".from", d.From, PartCountry, PartPrefix, PartCarrier, PartDomain, PartIPPrefix, PartWhole)
	if d.When != "" {
		oneOf(found, path+".when", d.When, WhenKnown, WhenDenied)
	}
	if forms, known := parts[d.From]; known && !slices.Contains(forms, p.Normalize.Form) {
		found.add(path+".from", "%q is a part of identifiers in the form %s: normalize them so", d.From, joined(forms, " or "))
	}
	d.checkBounds(found, path, p.Normalize.Form)
}

// checkBounds adds the problems of fields that are out of range or that the part does not use.
func (d Derivation) checkBounds(found *problems, path string, form Form) {
	within := func(what string, part Part, got, most int) {
		switch {
		case d.From == part && (got < 1 || got > most):
			found.add(path+".from", "%s %d is out of range: use 1 to %d", what, got, most)
		case d.From != part && got != 0:
			found.add(path+".from", "%s has no meaning for %q", what, d.From)
		}
	}
	most := MaxIPv6Bits
	if form == FormIPv6Net {
		most = subnetBits
	}
	within("prefix", PartPrefix, d.Digits, MaxDigits)
	within("ip-prefix", PartIPPrefix, d.IPv4Bits, MaxIPv4Bits)
	within("ipv6-prefix", PartIPPrefix, d.IPv6Bits, most)
}

// DeriveProblems returns the problems of policies that derive each other, by index of policies. It does not return those
// of a single policy.
func DeriveProblems(policies []Policy) map[int][]Problem {
	byName := make(map[string]*Policy, len(policies))
	for i := range policies {
		byName[policies[i].Name] = &policies[i]
	}
	all := make(map[int][]Problem)
	for i := range policies {
		var found problems
		for j, d := range policies[i].Derive {
			path := fmt.Sprintf("derive[%d].policy", j)
			switch to, known := byName[d.Policy]; {
			case !known:
				found.add(path, "there is no policy %q: add it, or name another one", d.Policy)
			case len(to.Derive) > 0:
				found.add(path, "%q derives itself: name a policy that does not", d.Policy)
			case slices.Contains(parts[d.From], policies[i].Normalize.Form) && !takes(to.Normalize.Form, d.From):
				found.add(path, "%q normalizes to %s, which %q is not: name a policy without normalize", d.Policy, to.Normalize.Form, d.From)
			case d.When != "" && to.Converts():
				found.add(path, "%q is a conversion, which does not apply to calls that conversions deny: name another policy for when: %s",
					d.Policy, d.When)
			default:
				d.derivedByProblems(&found, path, to)
			}
		}
		if len(found) > 0 {
			all[i] = found
		}
	}
	return all
}

// takes reports whether a policy with this form takes part as an identifier.
func takes(form Form, part Part) bool {
	switch form {
	case "", FormLowercase:
		return true
	case FormIP, FormIPv6Net:
		return part == PartIPPrefix
	}
	return false
}
