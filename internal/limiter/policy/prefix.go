package policy

import (
	"regexp"
	"unicode/utf8"
)

// MaxPrefixLen is the longest prefix of an override, in bytes.
const MaxPrefixLen = 64

// numberPrefix matches the beginning of a phone number in its canonical form, shorter than the longest number.
var numberPrefix = regexp.MustCompile(`^\+[1-9][0-9]{0,13}$`)

// HasPrefixes reports whether overrides may have prefixes of identifiers in this form, as for numbers and names. The prefix
// of a mail address would be a part of a person's name, and a network is not a prefix of the text of its addresses.
func (f Form) HasPrefixes() bool { return f == "" || f == FormE164 || f == FormLowercase }

// PrefixProblem returns the problem of a prefix of identifiers in their canonical form, empty if there is none. read reads
// identifiers of this form; it may be nil for other forms than FormLowercase.
func (f Form) PrefixProblem(prefix string, read ReadIdentifier) string {
	switch {
	case !f.HasPrefixes():
		return "the policy normalizes to " + string(f) + ", and only numbers (e164) and names have prefixes: give identifier instead"
	case prefix == "" || len(prefix) > MaxPrefixLen || !utf8.ValidString(prefix):
		return "use 1 to 64 bytes of UTF-8"
	case f == FormE164 && !numberPrefix.MatchString(prefix):
		return "it is not in the canonical form: use + and 1 to 14 digits, those of the country first, such as +4915"
	case f == FormLowercase:
		const more = "x" // so that a space at the prefix's end is within the identifier
		if canonical, _, err := read(prefix + more); err != nil || canonical != prefix+more {
			return "it is not in the canonical form: use lower case, composed (NFC), without spaces before it"
		}
	}
	return ""
}
