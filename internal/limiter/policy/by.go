package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// MaxByValues is the most identifiers for which a limit may have numbers of their own: more than there are countries.
// Each costs some 1.3 kB, or 2.4 if an instance may decide locally.
const MaxByValues = 300

// For returns l for the identifier value: with By's number for it, if there is one, and without By. Defaults are filled
// in.
func (l Limit) For(value string) Limit {
	if units, own := l.By[value]; own {
		l.Limit = units
	}
	l.By = nil
	return l.WithDefaults()
}

// For returns p for the identifier value.
func (p Policy) For(value string) Policy {
	limits := make([]Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = l.For(value)
	}
	p.Limits = limits
	return p
}

// ByValues returns the identifiers for which some limit of p has a number of its own, sorted.
func (p *Policy) ByValues() []string {
	var all []string
	for i := range p.Limits {
		all = slices.AppendSeq(all, maps.Keys(p.Limits[i].By))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkBy adds the problems of l's numbers for identifiers, unless l has the same problems with any number.
func (l Limit) checkBy(path string, found *problems) {
	if len(l.By) > MaxByValues {
		found.add(path+".by", "%d values: use at most %d", len(l.By), MaxByValues)
	}
	var general problems // of l's own number, reported elsewhere
	l.checkNumber("", &general)
	for _, value := range slices.Sorted(maps.Keys(l.By)) {
		var specific problems
		if value == "" {
			specific.add("", "no identifier is empty: name one")
		} else {
			l.For(value).checkNumber("", &specific)
		}
		specific = slices.DeleteFunc(specific, func(p Problem) bool { return slices.Contains(general, p) })
		if len(specific) > 0 {
			found.add(path+".by."+value, "%s", specific[0].Message)
		}
	}
}

// ReadByProblems returns the problems of identifiers in p's limits that are not in canonical form. read reads p's
// identifiers.
func (p Policy) ReadByProblems(read ReadIdentifier) []Problem {
	var found problems
	for i := range p.Limits {
		for _, value := range slices.Sorted(maps.Keys(p.Limits[i].By)) {
			at := fmt.Sprintf("limits[%d].by.%s", i, value)
			switch canonical, _, err := read(value); {
			case err != nil:
				found.add(at, "%v", err)
			case canonical != value:
				found.add(at, "it is counted as %q: write that", canonical)
			}
		}
	}
	return found
}

// derivedByProblems adds a problem if d never derives an identifier of to's limits.
func (d Derivation) derivedByProblems(found *problems, path string, to *Policy) {
	for _, value := range to.ByValues() {
		if to.Normalize.Form == FormLowercase && (d.From == PartCountry || d.From == PartCarrier && value != UnknownCarrier) {
			value = strings.ToUpper(value)
		}
		if wanted := d.couldBe(value); wanted != "" {
			found.add(path, "%q has a limit by %q, but no %s has that form: use %s there", d.Policy, value, d.From, wanted)
			return
		}
	}
}

// couldBe returns "" if value can be one of d's parts, else a description of these parts.
func (d Derivation) couldBe(value string) (wanted string) {
	ok := true
	switch d = d.WithDefaults(); d.From {
	case PartCountry:
		ok, wanted = countryName.MatchString(value), "two capital letters such as DE, or a code such as +800"
	case PartCarrier:
		country, name, _ := strings.Cut(value, "/")
		ok = value == UnknownCarrier || countryName.MatchString(country) && name != ""
		wanted = "a country and a carrier such as DE/Vodafone, or " + UnknownCarrier
	case PartPrefix:
		digits, plus := strings.CutPrefix(value, "+")
		ok = plus && len(digits) <= d.Digits && strings.Trim(digits, "0123456789") == ""
		wanted = fmt.Sprintf("a + and %d digits", d.Digits)
	case PartIPPrefix:
		network, err := netip.ParsePrefix(value)
		bits := d.IPv6Bits
		if network.Addr().Is4() {
			bits = d.IPv4Bits
		}
		ok = err == nil && network.Bits() == bits && network.Masked().String() == value
		wanted = fmt.Sprintf("a network of %d bits, of IPv6 of %d", d.IPv4Bits, d.IPv6Bits)
	case PartDomain:
		ok, wanted = value == strings.ToLower(value) && !strings.ContainsAny(value, " @"), "a domain in lower case"
	}
	if ok {
		return ""
	}
	return wanted
}
