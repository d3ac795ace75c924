package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// MaxByValues is how many identifiers a limit may have a number of its own for: more than there
// are countries. Each costs some 1.3 kB, and 2.4 where an instance may decide locally.
const MaxByValues = 300

// For returns l as it is for the identifier value: with the number that By has for it, if it
// has one, and without the others. Defaults are filled in.
func (l Limit) For(value string) Limit {
	if units, own := l.By[value]; own {
		l.Limit = units
	}
	l.By = nil
	return l.WithDefaults()
}

// For returns p as it is for the identifier value.
func (p Policy) For(value string) Policy {
	limits := make([]Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = l.For(value)
	}
	p.Limits = limits
	return p
}

// ByValues returns the identifiers that some limit of p has a number of its own for, in order.
func (p *Policy) ByValues() []string {
	var all []string
	for i := range p.Limits {
		all = slices.AppendSeq(all, maps.Keys(p.Limits[i].By))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkBy adds what is wrong with l's numbers for identifiers. It may be wrong with a number, or
// with what it makes of a burst.
func (l Limit) checkBy(path string, found *problems) {
	if len(l.By) > MaxByValues {
		found.add(path+".by", "%d values: use at most %d", len(l.By), MaxByValues)
	}
	var whatever problems // of any number
	l.checkNumber("", &whatever)
	for _, value := range slices.Sorted(maps.Keys(l.By)) {
		var of problems
		if value == "" {
			of.add("", "no identifier is empty: name one")
		} else {
			l.For(value).checkNumber("", &of)
		}
		of = slices.DeleteFunc(of, func(p Problem) bool { return slices.Contains(whatever, p) })
		if len(of) > 0 {
			found.add(path+".by."+value, "%s", of[0].Message)
		}
	}
}

// ReadByProblems returns which of the identifiers of p's limits are not written as they are
// counted, by read, which reads p's.
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

// derivedByProblems adds the identifiers of to's limits that d never derives.
func (d Derivation) derivedByProblems(found *problems, path string, to *Policy) {
	for _, value := range to.ByValues() {
		if to.Normalize.Form == FormLowercase && (d.From == PartCountry || d.From == PartCarrier && value != UnknownCarrier) {
			value = strings.ToUpper(value)
		}
		if wanted := d.couldBe(value); wanted != "" {
			found.add(path, "%q has a limit by %q, which %s never is: use %s there", d.Policy, value, d.From, wanted)
			return
		}
	}
}

// couldBe returns what parts that d takes look like, if value is none; else "".
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
