package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Choice says which of some values pass: those of Allow; or, with Deny, all others than those.
// The zero Choice lets all pass.
type Choice struct {
	Allow []string `json:",omitempty"`
	Deny  []string `json:",omitempty"`
}

// IsZero reports whether c lets all pass because it names none.
func (c Choice) IsZero() bool { return len(c.Allow) == 0 && len(c.Deny) == 0 }

// Passes reports whether value passes.
func (c Choice) Passes(value string) bool {
	if len(c.Allow) > 0 {
		return slices.Contains(c.Allow, value)
	}
	return !slices.Contains(c.Deny, value)
}

// Reason names the rule about numbers that denies.
type Reason string

// The values of Reason. The zero Reason: no such rule denies.
const (
	ReasonCountry    Reason = "country"     // the policy's Countries
	ReasonNumberType Reason = "number_type" // its NumberTypes
)

// NumberTypes are the kinds of phone numbers that Policy.NumberTypes may name. Where a country
// gives mobiles and fixed lines the same numbers, as those of +1 do, a number is both, and
// passes if either does.
var NumberTypes = []string{
	"fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "voip", "personal_number", "pager", "uan", "voicemail",
	NumberTypeUnknown,
}

// NumberTypeUnknown is the type of a number in no range that its country gives out.
const NumberTypeUnknown = "unknown"

// countryName is what names the country of a number: a region, or the code of numbers of none.
var countryName = regexp.MustCompile(`^([A-Z]{2}|\+[1-9][0-9]{0,2})$`)

// checkNumbers adds what is wrong with which numbers p lets pass.
func (p Policy) checkNumbers(found *problems) {
	p.checkChoice(found, "countries", p.Countries, func(country string) string {
		if countryName.MatchString(country) {
			return ""
		}
		return fmt.Sprintf("%q is no country: use two capital letters such as DE, or the code of numbers of no country, such as +800", country)
	})
	p.checkChoice(found, "number_types", p.NumberTypes, func(kind string) string {
		if slices.Contains(NumberTypes, kind) {
			return ""
		}
		return fmt.Sprintf("%q is no type of numbers: use one of %s", kind, strings.Join(NumberTypes, ", "))
	})
}

// checkChoice adds what is wrong with c. wrong says what is with a value of it; empty: nothing.
func (p Policy) checkChoice(found *problems, path string, c Choice, wrong func(string) string) {
	switch {
	case c.IsZero():
		return
	case p.Normalize.Form != FormE164:
		found.add(path, "only phone numbers have it: add normalize: e164, or remove it")
	case len(c.Allow) > 0 && len(c.Deny) > 0:
		found.add(path, "allow and deny: keep allow, which denies all others, or deny, which allows them")
	}
	check := func(list string, values []string) {
		for i, value := range values {
			at := fmt.Sprintf("%s.%s[%d]", path, list, i)
			if message := wrong(value); message != "" {
				found.add(at, "%s", message)
			} else if slices.Contains(values[:i], value) {
				found.add(at, "%q is there twice: keep one of them", value)
			}
		}
	}
	check("allow", c.Allow)
	check("deny", c.Deny)
}
