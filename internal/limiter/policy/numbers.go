package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Choice selects values: those of Allow, or all but those of Deny. With the zero Choice, all pass.
type Choice struct {
	Allow []string `json:",omitempty"`
	Deny  []string `json:",omitempty"`
}

// IsZero reports whether c names no values, and so passes all.
func (c Choice) IsZero() bool { return len(c.Allow) == 0 && len(c.Deny) == 0 }

// Passes reports whether value passes.
func (c Choice) Passes(value string) bool {
	if len(c.Allow) > 0 {
		return slices.Contains(c.Allow, value)
	}
	return !slices.Contains(c.Deny, value)
}

// Reason is the rule about numbers that denies.
type Reason string

// The values of Reason. The zero Reason means that no such rule denies.
const (
	ReasonCountry    Reason = "country"     // the policy's Countries
	ReasonNumberType Reason = "number_type" // its NumberTypes
)

// NumberTypes are the kinds of phone numbers that Policy.NumberTypes may name. If a country gives mobiles and fixed
// lines the same numbers, as those of +1 do, a number is both, and passes if either kind does.
var NumberTypes = []string{
	"fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "voip", "personal_number", "pager", "uan", "voicemail",
	NumberTypeUnknown,
}

// NumberTypeUnknown is the type of a number outside all assigned ranges of its country.
const NumberTypeUnknown = "unknown"

// countryName matches the country of a number: a region, or the code of numbers without a country.
var countryName = regexp.MustCompile(`^([A-Z]{2}|\+[1-9][0-9]{0,2})$`)

// checkNumbers adds the problems of p's rules about numbers.
func (p Policy) checkNumbers(found *problems) {
	p.checkChoice(found, "countries", p.Countries, func(country string) string {
		if countryName.MatchString(country) {
			return ""
		}
		return fmt.Sprintf("%q is not a country: use two capital letters such as DE, or the code of numbers of no country, such as +800", country)
	})
	p.checkChoice(found, "number_types", p.NumberTypes, func(kind string) string {
		if slices.Contains(NumberTypes, kind) {
			return ""
		}
		return fmt.Sprintf("%q is not a type of number: use one of %s", kind, strings.Join(NumberTypes, ", "))
	})
}

// checkChoice adds the problems of c. wrong returns the problem of one of its values, empty if there is none.
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
				found.add(at, "%q is listed twice: keep one of them", value)
			}
		}
	}
	check("allow", c.Allow)
	check("deny", c.Deny)
}
