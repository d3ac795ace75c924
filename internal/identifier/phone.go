package identifier

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// phones reads numbers. Those without a country belong to region.
type phones struct {
	region string
	wrong  error // of texts that are not numbers
}

// errUnclear is the error of a number that can be read with and without its country.
var errUnclear = errors.New("not clear whether this phone number begins with its country: write a plus before that, such as +4915112345678")

// newPhones returns a reader of numbers with a country, and of numbers without one of region, two letters; empty: they are
// refused.
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

// maxPhoneLen is the maximum length of a number in bytes, with spaces and digits of other scripts, which have up to four
// bytes.
const maxPhoneLen = 100

// read reads a number as people write it. It need not be assigned: assignments change every month, and instances must
// agree. It refuses texts that may have words or a second number.
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
		again, ok = p.parse(read.e164) // with superfluous zeros it may be read as another number
		ok = ok && again.e164 == read.e164
	}
	if !ok {
		return phone{}, p.wrong
	}
	return read, nil
}

// isUnclear reports whether given, a number without a plus that was read as one of the region, may be meant as another: all
// spellings that a gateway takes for the same phone must have the same key. The assigned ranges only decide whether there
// is an error, never which key a number has.
func (p *phones) isUnclear(given string, read phone) bool {
	if p.region == phonenumbers.UNKNOWN_REGION || strings.ContainsAny(given, plusSigns) {
		return false
	}
	digits := phonenumbers.NormalizeDigitsOnly(given)
	abroad, zeros := strings.CutPrefix(digits, "00")
	if zeros && read.number.GetCountryCodeSource() == phonenumbers.PhoneNumber_FROM_DEFAULT_COUNTRY {
		return true // the region has another prefix for calls abroad
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

// Characters in numbers that people write and copy.
const (
	plusSigns   = "+＋"
	punctuation = "-‐‑‒–—―−－ー.．()（）[]［］/／"
)

// inPhone reports whether a number may have r, in the form of plainly: a digit, a plus or a space.
func inPhone(r rune) bool {
	return unicode.IsDigit(r) || r == ' ' || strings.ContainsRune(plusSigns, r)
}

// plainly maps characters that people put between digits to a space, and removes invisible ones: phones and spreadsheets
// add marks of direction, joiners and soft hyphens to numbers that are copied.
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

// carrierLanguage is the language of names of carriers. A carrier must have the same name on every instance.
const carrierLanguage = "en"

// carrier returns the country of p and the carrier to which its range is assigned. A ported number keeps its first carrier.
func (p phone) carrier() string {
	name, err := phonenumbers.GetCarrierForNumber(p.number, carrierLanguage)
	if err != nil || name == "" { // Reader has checked for errors
		return policy.UnknownCarrier
	}
	return p.country() + "/" + name
}

// loadCarriers reads the table of carriers, which takes ten milliseconds, before the first call needs it.
func loadCarriers() error {
	_, err := phonenumbers.GetCarrierForNumber(&phonenumbers.PhoneNumber{}, carrierLanguage)
	return err
}

// noRegion is the region of numbers without a country, such as +800.
const noRegion = "001"

// country returns the region of p as two letters. A number in no region's ranges has the main region of its calling code; a
// number without a country has the code itself.
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
