package identifier

import (
	"errors"
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

// errUnclear is of a number that reads as one of the region and as another that has its country.
var errUnclear = errors.New("not clear whether this phone number begins with its country: write a plus before that, such as +4915112345678")

// newPhones returns a reader of numbers of the region, two letters; empty: only those that
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

// read reads a number as people write it. It need not be in use: which are changes by the month,
// and instances must agree. Texts that could hold a second number, or words, are refused.
func (p *phones) read(given string) (phone, error) {
	given = strings.Map(plainly, given)
	if len(given) > maxPhoneLen || strings.ContainsFunc(given, func(r rune) bool { return !inPhone(r) }) {
		return phone{}, p.wrong
	}
	read, ok := p.parse(given)
	if ok && p.isUnclear(given, read) {
		return phone{}, errUnclear
	}
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

// isUnclear reports whether a number without a plus, read as one of the region, may be meant as another: each spelling
// that a gateway takes for the same phone has to be the same key. Which ranges are in use has a say in whether there is an
// error, never in which key there is.
func (p *phones) isUnclear(given string, read phone) bool {
	if p.region == phonenumbers.UNKNOWN_REGION || strings.ContainsAny(given, plusSigns) {
		return false
	}
	digits := phonenumbers.NormalizeDigitsOnly(given)
	abroad, zeros := strings.CutPrefix(digits, "00")
	if zeros && read.number.GetCountryCodeSource() == phonenumbers.PhoneNumber_FROM_DEFAULT_COUNTRY {
		return true // where the way abroad is another one
	}
	other, possible := p.parse("+" + abroad)
	if !possible || other.e164 == read.e164 {
		return false
	}
	isRead, isOther := phonenumbers.IsValidNumber(read.number), phonenumbers.IsValidNumber(other.number)
	if zeros || other.number.GetCountryCode() != read.number.GetCountryCode() {
		return isOther && (zeros || !isRead)
	}
	return isOther || !isRead
}

func (p *phones) parse(given string) (phone, bool) {
	number, err := phonenumbers.ParseAndKeepRawInput(given, p.region)
	if err == nil {
		number, err = whole(number)
	}
	if err != nil || !phonenumbers.IsPossibleNumber(number) {
		return phone{}, false
	}
	return phone{number, phonenumbers.Format(number, phonenumbers.E164)}, true
}

// Characters of numbers as people write and copy them.
const (
	plusSigns   = "+＋"
	punctuation = "-‐‑‒–—―−－ー.．()（）[]［］/／"
)

// inPhone reports whether a number may have r: a digit, a plus, or a space, as plainly writes it.
func inPhone(r rune) bool {
	return unicode.IsDigit(r) || r == ' ' || strings.ContainsRune(plusSigns, r)
}

// plainly maps characters that people put between digits to a space, and invisible ones to none: phones and spreadsheets put
// marks of direction, joiners and soft hyphens around numbers that are copied.
func plainly(r rune) rune {
	switch {
	case r == '\u00ad', r == '\u061c', r == '\u180e', r == '\ufeff',
		'\u200b' <= r && r <= '\u200f', '\u202a' <= r && r <= '\u202e', '\u2060' <= r && r <= '\u206f':
		return -1
	case unicode.Is(unicode.Zs, r), strings.ContainsRune(punctuation, r):
		return ' '
	}
	return r
}

// part returns the country of p, its first digits, or its carrier.
func (p phone) part(d *policy.Derivation) string {
	switch d.From {
	case policy.PartPrefix:
		return p.e164[:min(len(p.e164), 1+d.Digits)]
	case policy.PartCarrier:
		return p.carrier()
	}
	return p.country()
}

// carrierLanguage is the language of names of carriers: one name for each, on every instance.
const carrierLanguage = "en"

// carrier returns the country of p and the carrier that its range was given to. A number that was ported has the one that
// it had first.
func (p phone) carrier() string {
	name, err := phonenumbers.GetCarrierForNumber(p.number, carrierLanguage)
	if err != nil || name == "" { // Reader has seen to errors
		return policy.UnknownCarrier
	}
	return p.country() + "/" + name
}

// loadCarriers reads the table of carriers, which takes ten milliseconds, before the first number is asked for.
func loadCarriers() error {
	_, err := phonenumbers.GetCarrierForNumber(&phonenumbers.PhoneNumber{}, carrierLanguage)
	return err
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
