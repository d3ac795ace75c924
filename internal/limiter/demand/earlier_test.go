package demand

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// earlier are policies with what earlier builds made of them: the text, and the two hashes.
var earlier = []struct {
	policy policy.Policy
	text   string
	print  uint64
	sums   uint64
}{
	{
		policy: policy.Policy{Name: "sms-send", Counting: policy.CountingCounters, Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 3, Window: time.Hour},
			{Algorithm: "fixed-window", Limit: 10, Calendar: policy.CalendarDay, Timezone: "Europe/Berlin"},
		}},
		text: `{"Name":"sms-send","Description":""` +
			`,"Limits":[{"Name":"sliding-log-1h","Algorithm":"sliding-log","Limit":3,"Window":3600000000000,` +
			`"Calendar":"","Timezone":"","Buckets":0,"Rounding":"","Burst":0},` +
			`{"Name":"fixed-window-day","Algorithm":"fixed-window","Limit":10,"Window":86400000000000,` +
			`"Calendar":"day","Timezone":"Europe/Berlin","Buckets":0,"Rounding":"","Burst":0}],` +
			`"Count":"admitted","Counting":"counters","Guarantee":"counted",` +
			`"Consistency":{"Write":"LOCAL_QUORUM","Read":"LOCAL_QUORUM"},"Mode":"enforce","OnStoreError":"deny",` +
			`"Normalize":{"Form":"","Region":"","Mailbox":false},"Derive":null,"BlockFor":0,"BlockFactor":0,"BlockMax":0}`,
		print: 12873650593681010801, sums: 3304378469002407664,
	},
	{
		policy: policy.Policy{
			Name: "every-member", Description: "not part of it", Count: policy.CountAll, Counting: policy.CountingRows,
			Guarantee: policy.GuaranteeLocal, Consistency: policy.Consistency{Write: policy.LevelOne, Read: policy.LevelTwo},
			Mode: policy.ModeShadow, OnStoreError: policy.OnStoreErrorAllow,
			Normalize:   policy.Normalize{Form: policy.FormE164, Region: "DE"},
			Derive:      []policy.Derivation{{Policy: "range", From: policy.PartPrefix, Digits: 7, When: policy.WhenKnown}},
			Countries:   policy.Choice{Allow: []string{"DE"}},
			NumberTypes: policy.Choice{Deny: []string{"premium_rate"}},
			BlockFor:    time.Minute, BlockFactor: 2, BlockMax: time.Hour,
			Limits: []policy.Limit{
				{Name: "burst", Algorithm: "sliding-window", Limit: 5, Window: time.Minute, Buckets: 6, Shadow: true},
				{Algorithm: "sliding-tail", Limit: 7, Window: time.Hour, Rounding: policy.RoundUp, By: map[string]int64{"a": 9, "b": 8}},
				{Algorithm: "sliding-log", Limit: 9, Window: time.Hour, Until: policy.UntilConfirmed},
				{Algorithm: "conversion", Limit: 4, Window: 24 * time.Hour, MinConversion: 30, Unconfirmed: true, Probe: time.Hour},
				{Algorithm: "token-bucket", Limit: 2, Window: time.Second, Burst: 4},
			},
		},
		text: `{"Name":"every-member","Description":""` +
			`,"Limits":[{"Name":"burst","Algorithm":"sliding-window","Limit":5,"Window":60000000000,` +
			`"Calendar":"","Timezone":"","Buckets":6,"Rounding":"","Burst":0,"Shadow":true},` +
			`{"Name":"sliding-tail-1h","Algorithm":"sliding-tail","Limit":7,"By":{"a":9,"b":8},"Window":3600000000000,` +
			`"Calendar":"","Timezone":"","Buckets":0,"Rounding":"up","Burst":0},` +
			`{"Name":"sliding-log-1h","Algorithm":"sliding-log","Limit":9,"Window":3600000000000,` +
			`"Calendar":"","Timezone":"","Buckets":0,"Rounding":"","Burst":0,"Until":"confirmed"},` +
			`{"Name":"conversion-1d","Algorithm":"conversion","Limit":4,"Window":86400000000000,` +
			`"Calendar":"","Timezone":"","Buckets":0,"Rounding":"","Burst":0,"MinConversion":30,"Unconfirmed":true,"Probe":3600000000000},` +
			`{"Name":"token-bucket-1s","Algorithm":"token-bucket","Limit":2,"Window":1000000000,` +
			`"Calendar":"","Timezone":"","Buckets":0,"Rounding":"","Burst":4}],` +
			`"Count":"all","Counting":"rows","Guarantee":"local",` +
			`"Consistency":{"Write":"ONE","Read":"TWO"},"Mode":"shadow","OnStoreError":"allow",` +
			`"Normalize":{"Form":"e164","Region":"DE","Mailbox":false},` +
			`"Derive":[{"Policy":"range","From":"prefix","Digits":7,"IPv4Bits":0,"IPv6Bits":0,"When":"known"}],` +
			`"Countries":{"Allow":["DE"]},"NumberTypes":{"Deny":["premium_rate"]},"BlockFor":60000000000,"BlockFactor":2,"BlockMax":3600000000000}`,
		print: 881502880769052303, sums: 11702097865296159935,
	},
}

// TestEarlierPrints holds that instances of this build and of earlier ones take the same definition of a policy for
// the same. These were written down once, and nothing makes them anew: under another print, owners refuse what
// instances of the other build hand on for as long as both run.
func TestEarlierPrints(t *testing.T) {
	for i := range earlier {
		e := &earlier[i]
		p := NewPlan(e.policy, Settings{}.WithDefaults(), false)
		told := p.Policy
		told.Description = ""
		text, err := json.Marshal(&told)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != e.text {
			t.Errorf("policy %s is printed as\n%s\nand by earlier builds as\n%s\n"+
				"A new field is absent where it says nothing: give it `json:\",omitzero\"`, and no default in WithDefaults. "+
				"One that is there keeps its name, its place and its type.", e.policy.Name, text, e.text)
		}
		if p.Definition.Print != e.print {
			t.Errorf("policy %s has the print %d, and of earlier builds %d", e.policy.Name, p.Definition.Print, e.print)
		}
		if p.Sums != e.sums {
			t.Errorf("policy %s has the sums %d, and in receipts of earlier builds %d: they could not be refunded",
				e.policy.Name, p.Sums, e.sums)
		}
	}
}
