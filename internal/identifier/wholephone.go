package identifier

import (
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers"
)

// Codes of countries in which a number is written, and reached, in two ways.
const (
	mexico    = 52
	argentina = 54
	brazil    = 55
	benin     = 229
)

// maxWholes is how often a number is completed: Argentina's may have a prefix too much first.
const maxWholes = 2

// whole returns the number that is reached by n, as its country writes it now.
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

// wholeDigits returns the digits that follow the country's code, of a number for which
// digits follow it.
func wholeDigits(code int, digits string) string {
	switch {
	case code == mexico: // all have ten digits since 2019, and prefixes that mobiles had still reach some
		for _, prefix := range []string{"1", "01", "044", "045"} {
			if rest, has := strings.CutPrefix(digits, prefix); has && len(rest) == 10 {
				return rest
			}
		}
	case code == argentina && len(digits) == 10: // a mobile's 9 is for calls from abroad, and messages arrive without it
		return "9" + digits
	case code == argentina && len(digits) > 11: // with what is dialled within the country behind the 9
		return strings.TrimPrefix(digits, "9")
	case code == brazil && len(digits) == 10 && digits[2] >= '6': // a mobile, before each got a ninth digit
		return digits[:2] + "9" + digits[2:]
	case code == benin && len(digits) == 8: // before November 2024
		return "01" + digits
	}
	return digits
}
