package identifier

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// mails reads mail addresses.
type mails struct {
	mailbox bool // addresses of the same mailbox are one identifier
}

// mail is a mail address.
type mail struct{ local, domain string }

// String returns the address.
func (m mail) String() string { return m.local + "@" + m.domain }

// part returns the domain.
func (m mail) part(*policy.Derivation) string { return m.domain }

var errMail = errors.New("not a mail address: send one such as anna@example.com, without a name, quotes or comments")

// The domain of Gmail, and its older name. Gmail ignores dots in front of the @.
const (
	gmail      = "gmail.com"
	googlemail = "googlemail.com"
)

// read reads an address. It converts all of it to lower case. By RFC 5321, a domain may distinguish Anna from anna, but no
// common one does; there, the two share a limit. If case counted, everybody would have a limit for each spelling.
func (f mails) read(given string) (mail, error) {
	if !utf8.ValidString(given) {
		return mail{}, errMail
	}
	address := lowercase(given)
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return mail{}, errMail
	}
	m := mail{address[:at], address[at+1:]}
	if f.mailbox {
		m = m.ofMailbox()
	}
	if !isLocal(m.local) || !isDomain(m.domain) {
		return mail{}, errMail
	}
	return m, nil
}

// ofMailbox returns m without the parts that do not change its mailbox: a tag after a plus (RFC 5233) and, at Gmail, dots.
func (m mail) ofMailbox() mail {
	m.local, _, _ = strings.Cut(m.local, "+")
	if m.domain == googlemail {
		m.domain = gmail
	}
	if m.domain == gmail {
		m.local = strings.ReplaceAll(m.local, ".", "")
	}
	return m
}

// isLocal reports whether text is a local part without quotes and comments, which can be written in many ways (RFC 5322,
// section 3.2.3).
func isLocal(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`()<>[]:;@\,"`, r)
	})
}

// isDomain reports whether text is labels of letters, marks and digits with dots between. It refuses characters that mail
// servers map to others or remove (UTS #46), such as wide ones: no domain has them, and they would be other spellings of
// one that has.
func isDomain(text string) bool {
	if !norm.NFKC.IsNormalString(text) {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || strings.ContainsFunc(label, func(r rune) bool { return !inDomain(r) }) {
			return false
		}
	}
	return true
}

func inDomain(r rune) bool {
	return r == '-' || r == '_' || unicode.In(r, unicode.L, unicode.M, unicode.N) &&
		!unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
