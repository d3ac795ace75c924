// Package identifier normalizes identifiers: a phone number, a mail address or an IP address can be written in several
// ways, each of which would have a limit of its own. It also derives parts of them, such as a country or a network,
// that are counted separately.
//
// It knows nothing about limits. No error quotes an identifier.
package identifier

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Reader returns a function that reads identifiers of p. It returns an identifier in the form of p.Normalize, the parts
// that p.Derive names, and the rule about numbers that refuses it. The canonical form of a canonical form is itself. The
// error of Reader names the unknown form or value; that of a rule about numbers is a policy.Problem.
func Reader(p *policy.Policy) (policy.ReadIdentifier, error) {
	n, derive := &p.Normalize, p.Derive
	switch n.Form {
	case "":
		return reader(asItIs, noPart, nil, derive), nil
	case policy.FormE164:
		numbers, err := newPhones(n.Region)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(derive, func(d policy.Derivation) bool { return d.From == policy.PartCarrier }) {
			if err := loadCarriers(); err != nil {
				return nil, fmt.Errorf("reading the table of carriers: %w", err)
			}
		}
		rules, err := newRules(p)
		if err != nil {
			return nil, err
		}
		return reader(numbers.read, phone.part, rules.refuse, derive), nil
	case policy.FormEmail:
		return reader(mails{n.Mailbox}.read, mail.part, nil, derive), nil
	case policy.FormIP:
		return reader(readNetwork, network.part, nil, derive), nil
	case policy.FormIPv6Net:
		return reader(readNetwork64, network.part, nil, derive), nil
	case policy.FormLowercase:
		return reader(readLowercase, noPart, nil, derive), nil
	}
	return nil, fmt.Errorf("%q is not a form of identifiers", n.Form)
}

// reader returns a function that reads identifiers by read, takes the parts in derive by part, and finds the rule that
// refuses one by refuse, which may be nil.
func reader[T interface{ String() string }](
	read func(string) (T, error), part func(T, *policy.Derivation) string, refuse func(T) policy.Reason, derive []policy.Derivation,
) policy.ReadIdentifier {
	return func(given string) (canonical string, found policy.Found, err error) {
		v, err := read(given)
		if err != nil {
			return "", found, err
		}
		if refuse != nil {
			found.Refused = refuse(v)
		}
		if len(derive) > 0 {
			found.Parts = make([]string, len(derive))
		}
		for i := range derive {
			if derive[i].From == policy.PartWhole {
				found.Parts[i] = v.String()
				continue
			}
			found.Parts[i] = part(v, &derive[i])
		}
		return v.String(), found, nil
	}
}

// text is an identifier without parts.
type text string

// String returns the text itself.
func (t text) String() string { return string(t) }

func asItIs(given string) (text, error) { return text(given), nil }

func noPart(text, *policy.Derivation) string { return "" }

var errText = errors.New("not text with visible characters: send UTF-8 that is more than spaces")

// readLowercase returns the text in lower case, composed (NFC), without spaces around it.
func readLowercase(given string) (text, error) {
	if !utf8.ValidString(given) {
		return "", errText
	}
	lower := lowercase(given)
	if lower == "" {
		return "", errText
	}
	return text(lower), nil
}

// lowercase returns given in lower case, composed, without spaces around it. It composes twice, because some letters form
// one character with their marks only in lower case.
func lowercase(given string) string {
	return norm.NFC.String(strings.ToLower(norm.NFC.String(strings.TrimFunc(given, unicode.IsSpace))))
}
