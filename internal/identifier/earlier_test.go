package identifier_test

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestEarlierSpellings holds that identifiers and their parts are spelled as by earlier builds. Another spelling has another
// key, with other counts.
func TestEarlierSpellings(t *testing.T) {
	phone := policy.Policy{Normalize: policy.Normalize{Form: policy.FormE164, Region: "DE"}, Derive: []policy.Derivation{
		{Policy: "q", From: policy.PartCountry}, {Policy: "q", From: policy.PartPrefix, Digits: 7}, {Policy: "q", From: policy.PartWhole},
	}}
	mail := policy.Policy{Normalize: policy.Normalize{Form: policy.FormEmail, Mailbox: true}, Derive: []policy.Derivation{
		{Policy: "q", From: policy.PartDomain}, {Policy: "q", From: policy.PartWhole},
	}}
	ip := policy.Policy{Normalize: policy.Normalize{Form: policy.FormIP}, Derive: []policy.Derivation{
		{Policy: "q", From: policy.PartIPPrefix, IPv4Bits: 24, IPv6Bits: 48},
	}}
	net := policy.Policy{Normalize: policy.Normalize{Form: policy.FormIPv6Net}}
	for _, c := range []struct {
		policy policy.Policy
		id     string
		want   string
	}{
		{phone, "0151 12345678", `"+4915112345678" ["DE" "+4915112" "+4915112345678"]`},
		{phone, "+1 (415) 555-2671", `"+14155552671" ["US" "+1415555" "+14155552671"]`},
		{mail, "A.b+c@GoogleMail.com", `"ab@gmail.com" ["gmail.com" "ab@gmail.com"]`},
		{mail, "Somebody@Bücher.example", `"somebody@bücher.example" ["bücher.example" "somebody@bücher.example"]`},
		{ip, "192.0.2.77", `"192.0.2.77" ["192.0.2.0/24"]`},
		{ip, "2001:DB8:1:2:0::1", `"2001:db8:1:2::1" ["2001:db8:1::/48"]`},
		{ip, "::ffff:192.0.2.77", `"192.0.2.77" ["192.0.2.0/24"]`},
		{net, "2001:db8:1:2:3::1", `"2001:db8:1:2::/64" []`},
		{policy.Policy{Normalize: policy.Normalize{Form: policy.FormLowercase}}, "  ÄB ", `"äb" []`},
	} {
		c.policy.Name, c.policy.Limits = "p", []policy.Limit{{Algorithm: "sliding-log"}}
		full := c.policy.WithDefaults()
		read, err := identifier.Reader(&full)
		if err != nil {
			t.Fatal(err)
		}
		id, found, err := read(c.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%q %q", id, found.Parts); got != c.want {
			t.Errorf("%q is spelled %s, and by earlier builds %s", c.id, got, c.want)
		}
	}
}
