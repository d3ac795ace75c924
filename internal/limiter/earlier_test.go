package limiter

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestEarlierAnswers reads what earlier builds kept of idempotency keys, and keeps the same. The texts were written
// down once, and nothing makes them anew: a field that has another name reads as nothing, and then a repetition of a
// call is told another answer or counts twice. A new field is `json:",omitzero"`.
func TestEarlierAnswers(t *testing.T) {
	limits := []policy.Limit{{Name: "hourly", Algorithm: "sliding-log", Limit: 3, Window: time.Hour}}
	d := count.Decision{
		Policy: &policy.Policy{Name: "sms-send", Mode: policy.ModeEnforce, Limits: limits}, Recorded: count.RecordedYes,
		Verdict:    count.Verdict{Allowed: true, Used: 1, Remaining: 2, ResetAfter: time.Hour, RetryAfter: time.Second},
		WouldAllow: true, Degraded: true, Blocked: true, Override: policy.OverrideLimits, Reason: policy.ReasonCountry,
	}
	d.SetLimits([]count.LimitDecision{{Limit: &limits[0], Verdict: d.Verdict}})
	for _, c := range []struct {
		kept usage
		text string
	}{
		{
			usage{State: usagePending, Fingerprints: [][]byte{{1}, {2}}, Started: fuzzNow,
				IDs: []store.EventID{{3}}, Gone: []store.EventID{{4}}},
			`{"State":"pending","Fingerprints":["AQ==","Ag=="],"Started":1772366400000,` +
				`"IDs":[[3,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]],"Gone":[[4,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]]}`,
		},
		{
			usage{State: usageFree, Fingerprints: [][]byte{{1}}},
			`{"State":"free","Fingerprints":["AQ=="],"Started":0,"IDs":null}`,
		},
		{
			usage{State: usageAnswered, Fingerprints: [][]byte{{1}}, Answer: storedOf(&Answer{Decision: d, Receipt: "r"})},
			`{"State":"answered","Fingerprints":["AQ=="],"Started":0,"IDs":null,"Answer":{"Demands":[{"Policy":"sms-send","Mode":"enforce",` +
				`"Limits":[{"Name":"hourly","Algorithm":"sliding-log","Limit":3,"Window":3600000000000,"Calendar":"","Timezone":"",` +
				`"Buckets":0,"Rounding":"","Burst":0}],` +
				`"Verdicts":[{"Allowed":true,"Used":1,"Remaining":2,"ResetAfter":3600000000000,"RetryAfter":1000000000}],` +
				`"Own":{"Allowed":true,"Used":1,"Remaining":2,"ResetAfter":3600000000000,"RetryAfter":1000000000},` +
				`"Tightest":0,"Would":true,"Degraded":true,"Blocked":true,"Override":"limits","Reason":"country","Recorded":"yes"}],"Receipt":"r"}}`,
		},
	} {
		text, err := json.Marshal(&c.kept)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != c.text {
			t.Errorf("of an idempotency key is kept\n%s\nand by earlier builds\n%s", text, c.text)
		}
		var got usage
		if err := json.Unmarshal([]byte(c.text), &got); err != nil || !reflect.DeepEqual(got, c.kept) {
			t.Errorf("what an earlier build kept reads as %+v, %v", got, err)
		}
	}
}

// TestEarlierCalls holds that a repetition of a call is known for one, whatever build decided it first.
func TestEarlierCalls(t *testing.T) {
	set := testSettings(Options{})
	r := &repetitions{identities: identities(set)}
	got := r.fingerprints(earlierKeyring(t), &Call{Op: count.OpTake, Demands: []Demand{
		{Policy: "sms-send", Identifier: "+4915112345678"}, {Policy: "api", Identifier: "a", Cost: 3},
	}})
	const want = "1863cc80aec76351f10f30d13f247899084fbef11723e8fa1ff2881b4061e3aa"
	if len(got) != 1 || hex.EncodeToString(got[0]) != want {
		t.Errorf("the call is known by %x, and by earlier builds by %s: a repetition would be refused as another call", got, want)
	}
}

// earlierKeyring returns the keys of a namespace that an earlier build made the secret of.
func earlierKeyring(t *testing.T) *once.Keyring {
	t.Helper()
	ids := store.NewEventIDs()
	scopes := once.NewScopes(&secretStore{}, ids, testSettings(Options{}))
	k, err := (&once.Secrets{Claims: scopes.Anywhere}).Keyring(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secretStore has the secret of a namespace in every cell.
type secretStore struct{ store.Store }

// Read returns the cell.
func (*secretStore) Read(context.Context, *store.Query) (store.State, error) {
	return store.State{Cell: store.Cell{Version: store.EventID{1}, Value: bytes.Repeat([]byte{1}, 32)}}, nil
}

// TestEarlierOverrides reads an override that an earlier build made, and makes the same.
func TestEarlierOverrides(t *testing.T) {
	const text = `{"policy":"sms-send","kind":"limits","limits":[{"name":"hourly","limit":9,"burst":10}],"by":"ops","at":1772366400000}`
	want := overrides.Details{Policy: "sms-send", Kind: policy.OverrideLimits, By: "ops", At: fuzzNow,
		Limits: []demand.LimitOverride{{Name: "hourly", Limit: 9, Burst: 10}}}
	made, err := json.Marshal(&want)
	if err != nil || string(made) != text {
		t.Errorf("an override is told as\n%s, and by earlier builds as\n%s", made, text)
	}
	var got overrides.Details
	if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("an override of an earlier build reads as %+v, %v", got, err)
	}
}
