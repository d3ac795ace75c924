package docs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/events"
)

// examplesOfEvents are the events of reference/events.md: when each is sent, whether one instance sends it for all, and
// its data.
func examplesOfEvents() map[events.Type]struct {
	when   string
	forAll bool
	data   any
} {
	since, until := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	const key = "5feceb66ffc86f38"
	country := events.Conversion{Policy: "otp-country", Limit: "unconfirmed", Key: key, Country: "DE"}
	countryEnded := country
	countryEnded.Since, countryEnded.Denied = &since, 12
	return map[events.Type]struct {
		when   string
		forAll bool
		data   any
	}{
		events.ConversionBegan: {"a conversion limit denies a key, such as a country's or a range's. `country` is set if the policy is " +
			"derived from countries, and `name` is the identifier, if the policy has it; `ratelimitd key` finds others", false, country},
		events.ConversionEnded: {"the limit denied no call for that key for five minutes", false, countryEnded},
		events.DenialsBegan: {"`--events-denied-share` of a policy's checks and takes within a minute were denied, of 20 calls or more",
			false, events.Denials{Policy: "login", Calls: 90, Denied: 60, Percent: 50}},
		events.DenialsEnded: {"less than four fifths of that share was denied", false,
			events.Denials{Policy: "login", Calls: 80, Denied: 20, Percent: 50, Since: &since}},
		events.DegradedBegan: {"the store does not answer, and `on_store_error` decides; `policies` has the decisions so far", false,
			events.Degraded{Since: since, Policies: map[string]int64{"login": 3}}},
		events.DegradedEnded: {"`on_store_error` decided no call for a minute", false,
			events.Degraded{Since: since, Policies: map[string]int64{"login": 312, "sms-send": 40}}},
		events.BlockMade: {"a denial blocked a key, by `block_for`. Two instances that deny it in the same second may both send this", true,
			events.Block{Policy: "login", Key: key, EndsAt: &until, Strikes: 2}},
		events.BlockEnded: {"a reset ended a block before `ends_at`", true, events.Block{Policy: "login", Key: key}},
		events.OverrideMade: {"an administrator made an override; one without an end has no `ends_at`", true, events.Override{
			Policy: "login", Key: key, Kind: "limits", Limits: []events.OverrideLimit{{Name: "per-hour", Limit: 50}}, EndsAt: &until, By: "operator",
		}},
		events.OverrideEnded: {"an administrator ended an override before its end", true,
			events.Override{Policy: "sms-send", Prefix: "+4915", By: "operator"}},
		events.PoliciesChanged: {"an administrator applied a version; or a changed file came into force, which each instance reports " +
			"with `file` and without `version`", true,
			events.Policies{Version: 7, Changed: []string{"login: per-hour limit 10 -> 20"}, By: "operator"}},
	}
}

// TestEventsAreUpToDate compares reference/events.md with the types of events and their data.
func TestEventsAreUpToDate(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(`# Events

<!-- Made from the code: go test ./docs -run UpToDate -update -->

[A receiver](../howto/events.md) gets these events as [CloudEvents 1.0](https://cloudevents.io) in JSON (` +
		"`application/cloudevents+json`" + `). ` +
		"`source` is `/ratelimitd/NAMESPACE`" + ` for events of all instances, which are sent once, ` +
		"and `/ratelimitd/NAMESPACE/INSTANCE`" + ` for events of each instance. ` + "`key`" + ` has the first 16 digits of ` +
		`[a key](../howto/worst-callers.md#whose-key-is-it). No event has an identifier; prefixes of overrides are in the clear.

| type | when | sent | data |
|---|---|---|---|
`)
	examples := examplesOfEvents()
	for _, of := range events.Types {
		example, known := examples[of]
		data, err := json.Marshal(example.data)
		if !known || err != nil {
			t.Fatalf("no example of %s: %v", of, err)
		}
		by := "by each instance"
		if example.forAll {
			by = "once"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | `%s` |\n", of, example.when, by, data)
	}
	for _, kind := range events.Kinds {
		ofKind := func(of events.Type) bool { return strings.HasPrefix(of.String(), "ratelimitd."+string(kind)+".") }
		if !slices.ContainsFunc(events.Types, ofKind) {
			t.Errorf("no type of the kind %s", kind)
		}
	}
	compare(t, "reference/events.md", b.String())
}

// TestPageSaysOneSignature checks that the page's command computes the signature of its header.
func TestPageSaysOneSignature(t *testing.T) {
	page := read(t, "howto/events.md")
	_, after, _ := strings.Cut(page, "webhook-signature: v1,")
	signature, after, found := strings.Cut(after, "\n")
	if !found || !strings.Contains(after, "| base64\n"+signature+"\n") {
		t.Errorf("openssl does not print %q", signature)
	}
}
