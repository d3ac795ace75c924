package identifier_test

import (
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func allow(values ...string) policy.Choice { return policy.Choice{Allow: values} }
func deny(values ...string) policy.Choice  { return policy.Choice{Deny: values} }

func rulesOf(countries, types policy.Choice) *policy.Policy {
	return &policy.Policy{Normalize: policy.Normalize{Form: policy.FormE164}, Countries: countries, NumberTypes: types}
}

// TestRules holds which rule refuses numbers of shared codes, of territories, without a country and without a type.
func TestRules(t *testing.T) {
	var all policy.Choice
	const country, kind, passes = policy.ReasonCountry, policy.ReasonNumberType, policy.Reason("")
	for _, c := range []struct {
		countries, types policy.Choice
		given            string
		want             policy.Reason
	}{
		{allow("DE", "AT"), all, "+4915112345678", passes},
		{allow("DE", "AT"), all, "+43 664 1234567", passes},
		{allow("DE", "AT"), all, "+33612345678", country},
		{deny("FR"), all, "+33612345678", country},
		{deny("FR"), all, "+4915112345678", passes},

		{allow("US"), all, "+12025550123", passes},
		{allow("US"), all, "+14165550123", country},  // Canada
		{allow("US"), all, "+18762101234", country},  // Jamaica
		{allow("US"), all, "+12425551234", country},  // the Bahamas, by the area code alone: the range is not in use
		{deny("CA"), all, "+11234567890", passes},    // an area code of nobody is of the country that most have
		{allow("US"), all, "+18005551212", passes},   // toll free numbers of all of +1 too
		{allow("RU"), all, "+79161234567", passes},   //
		{allow("RU"), all, "+77012345678", country},  // Kazakhstan
		{allow("GB"), all, "+447418123456", passes},  //
		{allow("GB"), all, "+447781123456", country}, // Guernsey
		{allow("GB"), all, "+447797712345", country}, // Jersey
		{allow("GB"), all, "+447624123456", country}, // the Isle of Man
		{allow("GB"), all, "+447700900123", passes},  // of no range: of the country that most have
		{deny("IT"), all, "+3906698123456", passes},  // the Vatican
		{deny("GB", "GG", "JE", "IM"), all, "+441481720000", country},
		{deny("US"), all, "+80012345678", passes}, // of no country
		{deny("+800"), all, "+80012345678", country},
		{allow("DE"), all, "+88216123456", country}, // a satellite

		{all, deny("premium_rate", "shared_cost", "voip"), "+4915112345678", passes},
		{all, deny("premium_rate", "shared_cost", "voip"), "+19005551234", kind},
		{all, deny("premium_rate", "shared_cost", "voip"), "+491802123456", kind},
		{all, deny("premium_rate", "shared_cost", "voip"), "+445612345678", kind},
		{all, deny("premium_rate", "shared_cost", "voip"), "+88216123456", kind},
		{all, deny("premium_rate", "shared_cost", "voip"), "+447700900123", passes}, // of no type
		{all, deny("unknown"), "+447700900123", kind},
		{all, allow("mobile"), "+447700900123", kind},
		{all, allow("mobile"), "+4930901820", kind},
		{all, allow("mobile"), "+12025550123", passes}, // may be one
		{all, deny("fixed_line"), "+12025550123", passes},
		{all, deny("fixed_line"), "+442079460000", kind},
		{all, deny("fixed_line", "mobile"), "+12025550123", kind},

		{allow("DE"), deny("premium_rate"), "+19005551234", country}, // the first that refuses
		{allow("US"), deny("premium_rate"), "+19005551234", kind},
	} {
		read, err := identifier.Reader(rulesOf(c.countries, c.types))
		if err != nil {
			t.Fatal(err)
		}
		if _, found, err := read(c.given); found.Refused != c.want || err != nil {
			t.Errorf("countries %v, types %v: %s is refused by %q, want %q (error %v)", c.countries, c.types, c.given, found.Refused, c.want, err)
		}
	}
}

// TestRulesReadNumbersFirst holds that a text that is not a number is an error, whatever the rules.
func TestRulesReadNumbersFirst(t *testing.T) {
	read, err := identifier.Reader(rulesOf(deny("DE"), deny("unknown")))
	if err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{"+49", "anna@example.com", "015112345678", "+999123456"} {
		if _, found, err := read(given); err == nil || found.Refused != "" {
			t.Errorf("%q: refused by %q, error %v", given, found.Refused, err)
		}
	}
}

func TestCountriesWithoutNumbers(t *testing.T) {
	for _, country := range []string{"UK", "XX", "EU", "001", "+1", "+49", "+999", "800", "DEU", ""} {
		_, err := identifier.Reader(rulesOf(deny("DE", country), policy.Choice{}))
		found := policy.Problem{}
		if !errors.As(err, &found) || found.Path != "countries.deny[1]" {
			t.Errorf("%q: %v", country, err)
		}
	}
	for _, country := range []string{"GB", "GG", "XK", "AX", "VA", "+800", "+870", "+882", "+979"} {
		if err := identifier.CheckCountry(country); err != nil {
			t.Errorf("%q: %v", country, err)
		}
	}
}
