package identifier_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/clients/conformance"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// forms are all ways to read identifiers, with all parts of each.
var forms = map[string]struct {
	policy.Normalize
	derive []policy.Derivation
}{
	"e164":          {policy.Normalize{Form: policy.FormE164}, ofPhones},
	"e164 DE":       {policy.Normalize{Form: policy.FormE164, Region: "DE"}, ofPhones},
	"e164 AR":       {policy.Normalize{Form: policy.FormE164, Region: "AR"}, ofPhones},
	"e164 AU":       {policy.Normalize{Form: policy.FormE164, Region: "AU"}, ofPhones},
	"e164 BR":       {policy.Normalize{Form: policy.FormE164, Region: "BR"}, ofPhones},
	"e164 ID":       {policy.Normalize{Form: policy.FormE164, Region: "ID"}, ofPhones},
	"e164 IN":       {policy.Normalize{Form: policy.FormE164, Region: "IN"}, ofPhones},
	"e164 IT":       {policy.Normalize{Form: policy.FormE164, Region: "IT"}, ofPhones},
	"e164 JP":       {policy.Normalize{Form: policy.FormE164, Region: "JP"}, ofPhones},
	"e164 US":       {policy.Normalize{Form: policy.FormE164, Region: "US"}, ofPhones},
	"e164 MX":       {policy.Normalize{Form: policy.FormE164, Region: "MX"}, ofPhones},
	"email":         {policy.Normalize{Form: policy.FormEmail}, ofMails},
	"email mailbox": {policy.Normalize{Form: policy.FormEmail, Mailbox: true}, ofMails},
	"ip":            {policy.Normalize{Form: policy.FormIP}, ofNetworks},
	"ipv6-64":       {policy.Normalize{Form: policy.FormIPv6Net}, ofNetworks},
	"lowercase":     {policy.Normalize{Form: policy.FormLowercase}, nil},
}

var (
	ofPhones   = []policy.Derivation{{From: policy.PartCountry}, {From: policy.PartPrefix, Digits: 5}}
	ofMails    = []policy.Derivation{{From: policy.PartDomain}}
	ofNetworks = []policy.Derivation{{From: policy.PartIPPrefix, IPv4Bits: 24, IPv6Bits: 48}}
)

func readerOf(t testing.TB, form string) policy.ReadIdentifier {
	t.Helper()
	f, known := forms[form]
	if !known {
		t.Fatalf("no form %q", form)
	}
	read, err := identifier.Reader(&policy.Policy{Normalize: f.Normalize, Derive: f.derive})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// refused stands for an identifier that is not in the form.
const refused = ""

func TestForms(t *testing.T) {
	for _, c := range []struct{ form, given, want string }{
		{"e164", "+4915112345678", "+4915112345678 DE +49151"},
		{"e164", " +49 (0)151 / 123-456.78\u00a0", "+4915112345678 DE +49151"},
		{"e164", "＋４９１５１１２３４５６７８", "+4915112345678 DE +49151"},
		{"e164", "+٤٩١٥١١٢٣٤٥٦٧٨", "+4915112345678 DE +49151"},
		{"e164", "+39 06 1234567", "+39061234567 IT +39061"}, // a zero that belongs to it
		{"e164", "+1 268 464 1234", "+12684641234 AG +12684"},
		{"e164", "+1 415 555 2671", "+14155552671 US +14155"},
		{"e164", "+44 7700 900123", "+447700900123 GB +44770"}, // never in use
		{"e164", "+800 1234 5678", "+80012345678 +800 +80012"},
		{"e164", "+49110", "+49110 DE +49110"},
		{"e164", "+7 940 712 34 56", "+79407123456 RU +79407"}, // Abkhazia's
		{"e164", "+7 701 123 45 67", "+77011234567 KZ +77011"},
		{"e164", "+44 7797 123456", "+447797123456 JE +44779"},
		{"e164", "+39 06 698 12345", "+390669812345 VA +39066"},
		{"e164", "+47 79 12 34 56", "+4779123456 SJ +47791"},
		{"e164", "+61 8 9164 1234", "+61891641234 CX +61891"},
		{"e164", "+212 5288 12345", "+212528812345 MA +21252"},
		{"e164", "+262 639 012345", "+262639012345 YT +26263"},
		{"e164", "+599 318 1234", "+5993181234 BQ +59931"},
		{"e164", "+44 7924 123456", "+447924123456 GB +44792"}, // the Isle of Man's
		{"e164", "+47 41 23 45 67", "+4741234567 NO +47412"},
		{"e164", "+995 442 12 34 56", "+995442123456 GE +99544"},
		{"e164", "+373 533 12345", "+37353312345 MD +37353"},
		{"e164", "+590 690 12 34 56", "+590690123456 GP +59069"},
		{"e164", "+54 9 11 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 11 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 (011) 15 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 9 11 15 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 9 011 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 2966 15 42-3456", "+5492966423456 AR +54929"},
		{"e164", "+54 9 9 11 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "+54 9 9 9 9 11 2345-6789", refused},
		{"e164", "+52 55 1234 5678", "+525512345678 MX +52551"},
		{"e164", "+52 1 55 1234 5678", "+525512345678 MX +52551"},
		{"e164", "+52 044 55 1234 5678", "+525512345678 MX +52551"},
		{"e164", "+52 01 222 123 4567", "+522221234567 MX +52222"},
		{"e164", "+52 1 1 55 1234 5678", refused},
		{"e164", "+55 11 98765-4321", "+5511987654321 BR +55119"},
		{"e164", "+55 11 8765-4321", "+5511987654321 BR +55119"},
		{"e164", "+55 11 3765-4321", "+551137654321 BR +55113"}, // no mobile
		{"e164", "+229 01 97 12 34 56", "+2290197123456 BJ +22901"},
		{"e164", "+229 97 12 34 56", "+2290197123456 BJ +22901"},
		{"e164 MX", "045 55 1234 5678", "+525512345678 MX +52551"},
		{"e164 AR", "011 15 2345-6789", "+5491123456789 AR +54911"},
		{"e164 AR", "11 2345-6789", "+5491123456789 AR +54911"},
		{"e164", "0151 12345678", refused},
		{"e164", "0049 151 12345678", refused}, // not everywhere the way abroad
		{"e164", "+999 123456", refused},
		{"e164", "+49", refused},
		{"e164", "+4915112345678901234", refused},
		{"e164", "+4915112345678, +447700900123", refused},
		{"e164", "+4915112345678;ext=1", refused},
		{"e164", "call +4915112345678", refused},
		{"e164", "+1 800 FLOWERS", refused},
		{"e164", "\n+4915112345678", refused},
		{"e164", "+49 15112345678" + strings.Repeat(" ", 100), refused},
		{"e164 DE", "0151 12345678", "+4915112345678 DE +49151"},
		{"e164 DE", "0049 151 12345678", "+4915112345678 DE +49151"},
		{"e164 DE", "+44 7700 900123", "+447700900123 GB +44770"},
		{"e164 DE", "151", "+49151 DE +49151"},
		{"e164", "\u200e+49\u00a0151\u202f123\u2011456\u200b78\u200f", "+4915112345678 DE +49151"},
		{"e164", "\u202a+4915112345678\u202c", "+4915112345678 DE +49151"},
		{"e164", "\ufeff\u2066+49\u00ad151\u206912345678", "+4915112345678 DE +49151"},
		{"e164", "\u2060+49\u2007151\u3000（12345）－678", "+4915112345678 DE +49151"},
		{"e164", "+49 151\u22121234\u20125678", "+4915112345678 DE +49151"},
		{"e164", "+4915112345678\u034f", refused},
		{"e164 DE", "\u200e0151 12345678", "+4915112345678 DE +49151"},
		{"e164 DE", "4915112345678", refused}, // of Leer, with its area code and no 0, or of Germany
		{"e164 DE", "0491 512345678", "+49491512345678 DE +49491"},
		{"e164 DE", "15112345678", "+4915112345678 DE +49151"},
		{"e164 US", "14155552671", "+14155552671 US +14155"},
		{"e164 US", "4155552671", "+14155552671 US +14155"},
		{"e164 US", "011 49 151 12345678", "+4915112345678 DE +49151"},
		{"e164 IN", "919876543210", "+919876543210 IN +91987"},
		{"e164 IN", "9198765432", "+919198765432 IN +91919"},
		{"e164 JP", "0049 151 12345678", refused},
		{"e164 JP", "010 49 151 12345678", "+4915112345678 DE +49151"},
		{"e164 JP", "090-1234-5678", "+819012345678 JP +81901"},
		{"e164 JP", "819012345678", "+819012345678 JP +81901"},
		{"e164 AU", "0049 151 12345678", refused},
		{"e164 AU", "0011 49 151 12345678", "+4915112345678 DE +49151"},
		{"e164 ID", "0049 151 12345678", refused},
		{"e164 BR", "0049 151 12345678", refused},
		{"e164 BR", "0055 11 98765 4321", refused}, // Embratel's way to +1 1987654321, or Brazil
		{"e164 BR", "11 98765-4321", "+5511987654321 BR +55119"},
		{"email", "Anna.Bauer+News@Example.COM", "anna.bauer+news@example.com example.com"},
		{"email", " anna@example.com\n", "anna@example.com example.com"},
		{"email", "JOSE\u0301@MU\u0308LLER.example", "josé@müller.example müller.example"},
		{"email", "a.n.n.a+x@gmail.com", "a.n.n.a+x@gmail.com gmail.com"},
		{"email mailbox", "A.n.n.a+x@GoogleMail.com", "anna@gmail.com gmail.com"},
		{"email mailbox", "Anna.Bauer+x+y@example.com", "anna.bauer@example.com example.com"},
		{"email mailbox", "+x@example.com", refused},
		{"email", "anna", refused},
		{"email", "@example.com", refused},
		{"email", "anna@", refused},
		{"email", "anna@example..com", refused},
		{"email", "anna@example.com.", refused},
		{"email", "anna@[203.0.113.7]", refused},
		{"email", `"anna"@example.com`, refused},
		{"email", "anna(x)@example.com", refused},
		{"email", "Anna <anna@example.com>", refused},
		{"email", "anna@b@example.com", refused},
		{"email", "an\u200bna@example.com", refused}, // it is invisible
		{"email", "anna@\uff45xample.com", refused},  // a wide e, which mail servers take for another one
		{"email", "anna@exa\u017fple.com", refused},  // a long s
		{"email", "anna@example\ufe0f.com", refused}, // it is invisible
		{"email", "anna@exam\u034fple.com", refused}, // so is this
		{"email", "anna@stra\u00dfe.example", "anna@straße.example straße.example"},
		{"email", "an na@example.com", refused},
		{"email", "anna@exa\xffmple.com", refused},
		{"ip", "203.0.113.7", "203.0.113.7 203.0.113.0/24"},
		{"ip", "::ffff:203.0.113.7", "203.0.113.7 203.0.113.0/24"},
		{"ip", "::ffff:cb00:7107/120", "203.0.113.0/24 203.0.113.0/24"},
		{"ip", "203.0.113.7/32", "203.0.113.7 203.0.113.0/24"},
		{"ip", "203.0.113.7/16", "203.0.0.0/16 203.0.0.0/16"},
		{"ip", " 2001:DB8:0:0::1 ", "2001:db8::1 2001:db8::/48"},
		{"ip", "fe80::1%eth0", "fe80::1 fe80::/48"},
		{"ip", "2001:db8:1:2::/64", "2001:db8:1:2::/64 2001:db8:1::/48"},
		{"ip", "::ffff:203.0.113.7%eth0", "203.0.113.7 203.0.113.0/24"},
		{"ip", "64:ff9b::203.0.113.7", "203.0.113.7 203.0.113.0/24"},
		{"ip", "64:ff9b::cb00:7107/120", "203.0.113.0/24 203.0.113.0/24"},
		{"ip", "2002:cb00:7107:1::5", "203.0.113.7 203.0.113.0/24"},
		{"ip", "::1", "::1 ::/48"},
		{"ip", "203.0.113.7:80", refused},
		{"ip", "[2001:db8::1]", refused},
		{"ip", "203.0.113.07", refused},
		{"ip", "203.0.113.7/33", refused},
		{"ip", "example.com", refused},
		{"ipv6-64", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64 2001:db8:1::/48"},
		{"ipv6-64", "2001:db8:1:2::/64", "2001:db8:1:2::/64 2001:db8:1::/48"},
		{"ipv6-64", "2001:db8:1::/56", "2001:db8:1::/56 2001:db8:1::/48"},
		{"ipv6-64", "203.0.113.7", "203.0.113.7 203.0.113.0/24"},
		{"ipv6-64", "::ffff:203.0.113.7", "203.0.113.7 203.0.113.0/24"},
		{"ipv6-64", "::ffff:cb00:7107/128", "203.0.113.7 203.0.113.0/24"},
		{"ipv6-64", "::ffff:0:203.0.113.7", "203.0.113.7 203.0.113.0/24"},                // translated
		{"ipv6-64", "::203.0.113.7", "203.0.113.7 203.0.113.0/24"},                       // compatible
		{"ipv6-64", "64:ff9b::203.0.113.7", "203.0.113.7 203.0.113.0/24"},                // NAT64
		{"ipv6-64", "64:ff9b::cb00:7107/104", "203.0.0.0/8 203.0.0.0/8"},                 // of the same
		{"ipv6-64", "64:ff9b::/64", "64:ff9b::/64 64:ff9b::/48"},                         // of more than IPv4
		{"ipv6-64", "64:ff9b:1::203.0.113.7", "203.0.113.7 203.0.113.0/24"},              // NAT64 of a network's own
		{"ipv6-64", "64:ff9b:1:fffe::203.0.113.7", "203.0.113.7 203.0.113.0/24"},         // the same
		{"ipv6-64", "64:ff9b:1:cb00:71:700::", "64:ff9b:1:cb00:71:700:: 64:ff9b:1::/48"}, // it is not in the last bits
		{"ipv6-64", "2002:cb00:7107::", "203.0.113.7 203.0.113.0/24"},                    // 6to4
		{"ipv6-64", "2002:cb00:7107:ffff:1:2:3:4", "203.0.113.7 203.0.113.0/24"},         // the same
		{"ipv6-64", "2002:cb00:7107:1::/64", "203.0.113.7 203.0.113.0/24"},
		{"ipv6-64", "2002:cb00::/32", "203.0.0.0/16 203.0.0.0/16"},
		{"ipv6-64", "2001:0:4136:e378:8000:63bf:34ff:8ef8", "203.0.113.7 203.0.113.0/24"}, // Teredo
		{"ipv6-64", "2001:0:4136:e378:8000:63bf:34ff:8e00/120", "203.0.113.0/24 203.0.113.0/24"},
		{"ipv6-64", "2001:0:4136:e378::/64", "2001:0:4136:e378::/64 2001:0:4136::/48"},
		{"ipv6-64", "::1", "::/64 ::/48"},
		{"lowercase", " ANNA ", "anna"},
		{"lowercase", "JOSE\u0301", "josé"},
		{"lowercase", "İ", "i"},
		{"lowercase", "H\u0331", "\u1e96"}, // composed only when it is small
		{"lowercase", " \u2003 ", refused},
		{"lowercase", "\xff", refused},
	} {
		canonical, found, err := readerOf(t, c.form)(c.given)
		if got := strings.Join(append([]string{canonical}, found.Parts...), " "); got != c.want || (err != nil) != (c.want == refused) {
			t.Errorf("%s: %q is %q, want %q (error %v)", c.form, c.given, got, c.want, err)
		}
	}
}

// TestAddresses reads the table of addresses as policies do, which take no ports.
func TestAddresses(t *testing.T) {
	read := readerOf(t, "ipv6-64")
	for _, c := range conformance.Addresses(t) {
		if _, err := netip.ParseAddr(c.Address); err != nil {
			continue
		}
		for _, given := range []string{c.Address, c.Caller} {
			if got, _, err := read(given); got != c.Caller || err != nil {
				t.Errorf("%s is %s, want %s: %s (error %v)", given, got, c.Caller, c.Why, err)
			}
		}
	}
}

// TestOneNumberIsOneKey holds that all spellings of a number have the same key.
func TestOneNumberIsOneKey(t *testing.T) {
	read := readerOf(t, "e164")
	random := rand.New(rand.NewPCG(1, 2))
	for _, ways := range [][]string{{"+54%s", "+549%s"}, {"+52%s", "+521%s", "+5201%s", "+52044%s", "+52045%s"}} {
		for range 500 {
			digits := strconv.FormatInt(1_100_000_000+random.Int64N(8_900_000_000), 10)
			one := ""
			for _, way := range ways {
				canonical, _, err := read(fmt.Sprintf(way, digits))
				if one == "" {
					one = canonical
				}
				if err != nil || canonical != one {
					t.Fatalf(way+" is %q, and %q otherwise: %v", digits, canonical, one, err)
				}
			}
		}
	}
}

// TestWhatNobodyKnows holds that unknown values are refused when a policy comes into force, not by its calls.
func TestWhatNobodyKnows(t *testing.T) {
	for _, n := range []policy.Normalize{{Form: "e.164"}, {Form: policy.FormE164, Region: "XX"}, {Form: policy.FormE164, Region: "001"}} {
		if _, err := identifier.Reader(&policy.Policy{Normalize: n}); err == nil {
			t.Errorf("%+v is known", n)
		}
	}
	read, err := identifier.Reader(new(policy.Policy))
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := read(" As It Is\xff"); got != " As It Is\xff" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// FuzzReader holds that a canonical form is read as itself, that every part is there, and that no error quotes an
// identifier.
func FuzzReader(f *testing.F) {
	for _, given := range []string{
		"+49 (0)151 12345678", "+39 06 1234567", "+1 268 464 1234", "0151/123", "+800 1234 5678", "+8881234567890",
		"+54 9 11 15 2345-6789", "+521 55 1234 5678", "+55 11 8765-4321", "+229 97 12 34 56",
		"Anna.B+x@GoogleMail.com", "@", "ΑΣ@ΜΥ.gr", "İ\u0307", "K\u212a", "\u0345\u0345A", "0000000000",
		"2001:db8::1/33", "::ffff:1.2.3.4/90", "::ffff:0:0/95", "fe80::1%1",
		"64:ff9b::1.2.3.4", "64:ff9b:1::1.2.3.4/97", "2002:102:304::/40", "2001:0:1::8/100", "::1.2.3.4/104", "::/0",
	} {
		f.Add(given)
	}
	f.Fuzz(func(t *testing.T, given string) {
		for form := range forms {
			read := readerOf(t, form)
			canonical, found, err := read(given)
			if err != nil {
				if len(given) > len("+4915112345678") && strings.Contains(err.Error(), given) {
					t.Errorf("%s: the error repeats %q: %v", form, given, err)
				}
				continue
			}
			if slices.Contains(found.Parts, "") || len(found.Parts) != len(forms[form].derive) {
				t.Errorf("%s: %q has the parts %q", form, given, found.Parts)
			}
			again, foundAgain, err := read(canonical)
			if again != canonical || err != nil || !slices.Equal(found.Parts, foundAgain.Parts) {
				t.Errorf("%s: %q is %q %q, and that is %q %q (error %v)", form, given, canonical, found.Parts, again, foundAgain.Parts, err)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for _, c := range []struct{ form, given string }{
		{"e164", "+4915112345678"}, {"email", "Anna@Example.com"}, {"ip", "203.0.113.7"}, {"ipv6-64", "2001:db8::1"}, {"lowercase", "Anna"},
	} {
		for _, derive := range []string{"alone", "parts"} {
			f := forms[c.form]
			if derive == "alone" {
				f.derive = nil
			} else if f.derive == nil {
				continue
			}
			read, err := identifier.Reader(&policy.Policy{Normalize: f.Normalize, Derive: f.derive})
			if err != nil {
				b.Fatal(err)
			}
			b.Run(c.form+"/"+derive, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := read(c.given); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
