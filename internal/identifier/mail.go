package identifier

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// mails reads addresses of mail.
type mails struct {
	mailbox bool // addresses that are delivered to the same mailbox are one
}

// mail is an address that was read.
type mail struct{ local, domain string }

// String returns the address.
func (m mail) String() string { return m.local + "@" + m.domain }

// part returns the domain.
func (m mail) part(*policy.Derivation) string { return m.domain }

var errMail = errors.New("not an address of mail: send one such as anna@example.com, without a name, quotes or comments")

// The domain of Gmail, by its older name too, where dots in front of the @ mean nothing.
const (
	gmail      = "gmail.com"
	googlemail = "googlemail.com"
)

// read reads an address. It is in lower case as a whole: by RFC 5321 a domain may tell Anna from anna, but no common
// one does. At one that does, namesakes share a limit; if case counted, everybody would have as many limits as there
// are ways to put capitals.
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

// ofMailbox drops the parts that don't change the mailbox of m: a tag after a plus (RFC 5233)
// and, at Gmail, dots.
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

// isLocal reports whether text is in front of an @ without quotes and comments: each of
// these can be written in many ways that mean the same (RFC 5322, section 3.2.3).
func isLocal(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`()<>[]:;@\,"`, r)
	})
}

// isDomain reports whether text is labels of letters, marks and digits with dots between. It refuses characters that mail
// servers map to other letters or to nothing (UTS #46), such as wide ones: no domain has them, and each would be another
// spelling of a domain without.
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
