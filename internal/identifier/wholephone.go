package identifier

import (
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers"
)

// Calling codes of countries in which one phone can be called by two numbers.
const (
	mexico    = 52
	argentina = 54
	brazil    = 55
	benin     = 229
)

// maxWholes is the maximum of steps in which a number is completed. Argentina's may need two.
const maxWholes = 2

// whole returns the current form of n.
func whole(n *phonenumbers.PhoneNumber) (*phonenumbers.PhoneNumber, error) {
	code := int(n.GetCountryCode())
	switch code {
	case mexico, argentina, brazil, benin:
	default:
		return n, nil
	}
	for range maxWholes {
		digits := phonenumbers.GetNationalSignificantNumber(n)
		completed := wholeDigits(code, digits)
		if completed == digits {
			break
		}
		var err error
		if n, err = phonenumbers.Parse("+"+strconv.Itoa(code)+completed, phonenumbers.UNKNOWN_REGION); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// wholeDigits returns the current digits after the calling code of a number with these digits.
func wholeDigits(code int, digits string) string {
	switch {
	case code == mexico: // numbers have ten digits since 2019; the earlier prefixes of mobiles still work for some
		for _, prefix := range []string{"1", "01", "044", "045"} {
			if rest, has := strings.CutPrefix(digits, prefix); has && len(rest) == 10 {
				return rest
			}
		}
	case code == argentina && len(digits) == 10: // calls from abroad need a mobile's 9, and messages arrive without it
		return "9" + digits
	case code == argentina && len(digits) > 11: // it has the prefix for calls within the country after the 9
		return strings.TrimPrefix(digits, "9")
	case code == brazil && len(digits) == 10 && digits[2] >= '6': // a mobile without the ninth digit that all have now
		return digits[:2] + "9" + digits[2:]
	case code == benin && len(digits) == 8: // before November 2024
		return "01" + digits
	}
	return digits
}
