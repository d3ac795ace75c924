package identifier

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// phones reads numbers, those without a country as of a region.
type phones struct {
	region string
	wrong  error
}

// newPhones returns what reads numbers of the region, two letters; empty: only those that
// name their country.
func newPhones(region string) (*phones, error) {
	if region == "" {
		return &phones{phonenumbers.UNKNOWN_REGION, errors.New("not a phone number with its country: send one such as +4915112345678")}, nil
	}
	if !phonenumbers.GetSupportedRegions()[region] {
		return nil, errors.New("no phone number has the region " + strconv.Quote(region) + ": use a country's two letters, such as DE")
	}
	return &phones{region, errors.New("not a phone number: send one such as +4915112345678, or of " + region + " without its country")}, nil
}

// phone is a number that was read.
type phone struct {
	number *phonenumbers.PhoneNumber
	e164   string
}

// String returns the number in the form of E.164.
func (p phone) String() string { return p.e164 }

// maxPhoneLen is more than a number takes however it is spaced, in bytes: digits of other
// scripts have up to four.
const maxPhoneLen = 100

// read reads a number as people write it. It need not be in use: which are changes by the
// month, and instances must agree. What could hold a second number, or text, is refused.
func (p *phones) read(given string) (phone, error) {
	if len(given) > maxPhoneLen || strings.ContainsFunc(given, func(r rune) bool { return !inPhone(r) }) {
		return phone{}, p.wrong
	}
	read, ok := p.parse(given)
	if ok && read.e164 != given {
		var again phone
		again, ok = p.parse(read.e164) // each zero too many may make another number
		ok = ok && again.e164 == read.e164
	}
	if !ok {
		return phone{}, p.wrong
	}
	return read, nil
}

func (p *phones) parse(given string) (phone, bool) {
	number, err := phonenumbers.Parse(given, p.region)
	if err == nil {
		number, err = whole(number)
	}
	if err != nil || !phonenumbers.IsPossibleNumber(number) {
		return phone{}, false
	}
	return phone{number, phonenumbers.Format(number, phonenumbers.E164)}, true
}

// inPhone reports whether a number may have r: a digit, or what people put between.
func inPhone(r rune) bool {
	return unicode.IsDigit(r) || unicode.Is(unicode.Zs, r) || slices.Contains([]rune("+＋-‐‑–.()/"), r)
}

// part returns the country of p, or its first digits.
func (p phone) part(d *policy.Derivation) string {
	if d.From == policy.PartPrefix {
		return p.e164[:min(len(p.e164), 1+d.Digits)]
	}
	return p.country()
}

// noRegion is the region of numbers of no country, such as +800.
const noRegion = "001"

// country returns the region of p as two letters; of a number that none of the regions with
// its country code has, the one that most have; where there is none, the code itself.
func (p phone) country() string {
	code := int(p.number.GetCountryCode())
	region := phonenumbers.GetRegionCodeForNumber(p.number)
	if region == "" {
		region = phonenumbers.GetRegionCodeForCountryCode(code)
	}
	if region == noRegion || region == phonenumbers.UNKNOWN_REGION {
		return "+" + strconv.Itoa(code)
	}
	return region
}
