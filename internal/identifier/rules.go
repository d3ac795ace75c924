package identifier

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nyaruka/phonenumbers"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// rules select the numbers that pass, by country and by type. The zero value passes all.
type rules struct {
	countries, types policy.Choice
}

// newRules returns the rules of p. The error is a policy.Problem about a country without phone numbers.
func newRules(p *policy.Policy) (rules, error) {
	for list, countries := range map[string][]string{"allow": p.Countries.Allow, "deny": p.Countries.Deny} {
		for i, country := range countries {
			if err := CheckCountry(country); err != nil {
				return rules{}, policy.Problem{Path: fmt.Sprintf("countries.%s[%d]", list, i), Message: err.Error()}
			}
		}
	}
	return rules{p.Countries, p.NumberTypes}, nil
}

// CheckCountry returns an error unless country has phone numbers: two letters such as DE, or a calling code without a
// country, such as +800.
func CheckCountry(country string) error {
	if phonenumbers.GetSupportedRegions()[country] {
		return nil
	}
	code, err := strconv.Atoi(country)
	if err == nil && country[0] == '+' && phonenumbers.GetRegionCodeForCountryCode(code) == noRegion {
		return nil
	}
	return fmt.Errorf("no phone number has the country %q: use two letters of ISO 3166, such as GB, "+
		"or a calling code without a country, such as +800", country)
}

// Countries returns the two letters of all countries that have phone numbers, in order.
func Countries() []string { return slices.Sorted(maps.Keys(phonenumbers.GetSupportedRegions())) }

// refuse returns the rule that refuses p, empty if none does.
func (r rules) refuse(p phone) policy.Reason {
	switch {
	case !r.countries.IsZero() && !r.countries.Passes(p.country()):
		return policy.ReasonCountry
	case !r.types.IsZero() && !slices.ContainsFunc(typesOf(p.number), r.types.Passes):
		return policy.ReasonNumberType
	}
	return ""
}

// typeNames are the names of types in policies. A number that may be of two types has both.
var typeNames = map[phonenumbers.PhoneNumberType][]string{
	phonenumbers.FIXED_LINE:           {"fixed_line"},
	phonenumbers.MOBILE:               {"mobile"},
	phonenumbers.FIXED_LINE_OR_MOBILE: {"fixed_line", "mobile"},
	phonenumbers.TOLL_FREE:            {"toll_free"},
	phonenumbers.PREMIUM_RATE:         {"premium_rate"},
	phonenumbers.SHARED_COST:          {"shared_cost"},
	phonenumbers.VOIP:                 {"voip"},
	phonenumbers.PERSONAL_NUMBER:      {"personal_number"},
	phonenumbers.PAGER:                {"pager"},
	phonenumbers.UAN:                  {"uan"},
	phonenumbers.VOICEMAIL:            {"voicemail"},
}

// unknownType is the type of a number in no range that its country assigns.
var unknownType = []string{policy.NumberTypeUnknown}

func typesOf(number *phonenumbers.PhoneNumber) []string {
	if names := typeNames[phonenumbers.GetNumberType(number)]; names != nil {
		return names
	}
	return unknownType
}
