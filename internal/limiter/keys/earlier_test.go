package keys_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestEarlierKeys holds that counts stay where earlier builds put them. These keys were written down once, and
// nothing makes them anew: under other ones every caller begins with a full quota, and during a rolling upgrade
// instances count the same caller in two places.
func TestEarlierKeys(t *testing.T) {
	secret := &keys.HashKey{ID: "k1", Secret: []byte("sixteen bytes or more")}
	sms := keys.KeySpace{Policy: "sms-send", Guarantee: policy.GuaranteeCounted}
	for name, c := range map[string]struct {
		keyer keys.Keyer
		space keys.KeySpace
		id    keys.Identifier
		want  string
	}{
		"plain": {
			keys.Keyer{}, sms, "+4915112345678",
			"55a8046dc674c796c0b0ddcd7291034edfa8b2a8c39849600a1a6282db9e4da6",
		},
		"namespace": {
			keys.Keyer{Namespace: "prod"}, sms, "+4915112345678",
			"c48d8ab5e4d9412ec16d88091ea2a593ef7fd9b014b581f00c95d497bc48f979",
		},
		"hash key": {
			keys.Keyer{Namespace: "prod", Secret: secret}, sms, "+4915112345678",
			"5d3413892513e0b45ee9ab1ed2c3a67b5520c35fffd2845a96af53f6842505f0",
		},
		"data centre": {
			keys.Keyer{Secret: secret}, keys.KeySpace{Policy: "api", Guarantee: policy.GuaranteeLocal, Scope: "east"}, "a",
			"141194bf3be8d5a9c1f3f9e793b1654f1a4db4b6f3b03845f34899321a6e68ef",
		},
		"buckets": {
			keys.Keyer{}, keys.KeySpace{Policy: "b", Guarantee: policy.GuaranteeCounted, SerialLevel: "LOCAL_SERIAL"}, "a",
			"67fa98e6758c0c04ec6c1f9c2fd0d25b3ad3282e70adc8f22acd5e17a62082af",
		},
		"longest": {
			keys.Keyer{Secret: secret}, sms, keys.Identifier(strings.Repeat("x", keys.MaxIdentifierLen)),
			"f838f08c01f66fb2acc7d64fb9747c08f41c39d2114f0c1f9dc39f631cad159d",
		},
		"idempotency": {
			keys.Keyer{Namespace: "prod"}, keys.KeySpace{Policy: " idempotency", SerialLevel: "SERIAL"}, "\x00\x01\x02",
			"07d156056e6469ceef7ffc9319e55f2be5edc650557872220ae507e6bfcf14e4",
		},
		"no identifier": {
			keys.Keyer{}, keys.KeySpace{}, "",
			"39e6529f7d009df8d98f5dd6de87cc1f55ee1f98a20de5f192ae9996f0aa86e7",
		},
	} {
		made := c.keyer.For(c.space).CachedIn(new(keys.Cache))
		for range 2 { // the second is from the cache
			if got := hex.EncodeToString(made.Of(c.id).Bytes()); got != c.want {
				t.Errorf("%s: the key is %s, and of earlier builds it is %s: hash as they do", name, got, c.want)
			}
		}
	}
	if got, want := (&keys.Keyer{Namespace: "prod", Secret: secret}).For(sms).ID(), uint64(4064460221220909126); got != want {
		t.Errorf("the space of keys has the ID %d, and in receipts of earlier builds it has %d: they could not be refunded", got, want)
	}
}
