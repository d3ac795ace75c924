package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// signup has room for two units, so that it denies before sms-send does.
var signup = policy.Policy{Name: "signup-ip", Limits: []policy.Limit{perMinute(2)}}

// both is the beginning of a call with two demands.
func both(more string) string {
	return `{"demands":[` + one + `,{"policy":"signup-ip","identifier":"203.0.113.7"}]` + more + `}`
}

// TestCalls compares the answers to calls with several demands and other members with those in testdata.
func TestCalls(t *testing.T) {
	ip := `{"policy":"signup-ip","identifier":"203.0.113.7"}`
	key := []string{"Idempotency-Key", "5f0c"}
	for name, steps := range map[string][]step{
		"several-demands": {
			{path: "/v1/check", body: both("")},
			{path: "/v1/take", body: both("")},
			{path: "/v1/record", body: ip},
			{path: "/v1/take", body: both("")}, // signup-ip denies
			{path: "/v1/check", body: one},     // so nothing was recorded here
			{path: "/v1/record", body: both("")},
		},
		"several-demands-shadow-and-off": {
			{path: "/v1/take", body: `{"demands":[` + one + `,{"policy":"shadow","identifier":"a"},{"policy":"off","identifier":"a"}]}`},
			{path: "/v1/take", body: `{"demands":[` + one + `,{"policy":"shadow","identifier":"a"},{"policy":"off","identifier":"a"}]}`},
			{path: "/v1/take", body: `{"demands":[{"policy":"closed","identifier":"a"},{"policy":"off","identifier":"a"}]}`},
			{path: "/v1/take", body: `{"demands":[{"policy":"off","identifier":"a"},{"policy":"off","identifier":"b"}]}`},
		},
		"refund": {
			{path: "/v1/take", body: both("")},
			{path: "/v1/refund", body: `{"receipt":"RECEIPT"}`},
			{path: "/v1/check", body: both("")},
			{path: "/v1/refund", body: `{"receipt":"RECEIPT"}`},
			{path: "/v1/record", body: ip},
			{at: 3 * time.Minute, path: "/v1/refund", body: `{"receipt":"RECEIPT"}`}, // its window is over
		},
		"idempotency": {
			{path: "/v1/take", body: one, headers: key},
			{at: time.Second, path: "/v1/take", body: one, headers: key},
			{at: 2 * time.Second, path: "/v1/take", body: ip, headers: key},
			{at: 2 * time.Second, path: "/v1/record", body: one, headers: key},
			{at: 3 * time.Second, path: "/v1/check", body: one},
			{path: "/v1/record", body: `{"policy":"signup-ip","identifier":"a","cost":2}`},
			{path: "/v1/take", body: `{"policy":"signup-ip","identifier":"a"}`, headers: []string{"Idempotency-Key", "77"}},
			{at: time.Minute, path: "/v1/take", body: `{"policy":"signup-ip","identifier":"a"}`, headers: []string{"Idempotency-Key", "77"}},
			{at: time.Minute, path: "/v1/take", body: both(""), headers: []string{"Idempotency-Key", "78"}},
			{at: time.Minute, path: "/v1/take", body: both(""), headers: []string{"Idempotency-Key", "78"}},
		},
		"reservation": {
			{path: "/v1/check", body: strings.Replace(one, "}", `,"cost":2,"reserve_ms":30000}`, 1)},
			{at: time.Second, path: "/v1/check", body: one},
			{at: 2 * time.Second, path: "/v1/record", body: strings.Replace(one, "}", `,"cost":2,"reservation":"RESERVATION"}`, 1)},
			{at: 3 * time.Second, path: "/v1/record", body: strings.Replace(one, "}", `,"cost":2,"reservation":"RESERVATION"}`, 1)},
			{at: 3 * time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION"}`},
			{at: 4 * time.Second, path: "/v1/record", body: strings.Replace(one, "}", `,"cost":1,"reservation":"RESERVATION"}`, 1)},
			{at: 5 * time.Second, path: "/v1/check", body: strings.Replace(one, "}", `,"cost":2,"reserve_ms":30000}`, 1)}, // denied
			{at: 5 * time.Second, path: "/v1/check", body: `{"policy":"shadow","identifier":"a","reserve_ms":30000}`},
			{at: 5 * time.Second, path: "/v1/check", body: `{"policy":"off","identifier":"a","reserve_ms":30000}`},
			{at: 6 * time.Second, path: "/v1/check", body: both(`,"reserve_ms":1000`)},
			{at: 6 * time.Second, path: "/v1/record", body: both(`,"reservation":"RESERVATION"`)},
			{at: 6 * time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION"}`},
			{at: 7 * time.Second, path: "/v1/refund", body: `{"receipt":"RECEIPT"}`},
			{at: 8 * time.Second, path: "/v1/check", body: both("")},
		},
		"settle": {
			{path: "/v1/check", body: `{"policy":"tokens","identifier":"a","cost":40,"reserve_ms":30000}`},
			{at: time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION","cost":13}`},
			{at: 2 * time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION","cost":40}`}, // the first has the say
			{at: 2 * time.Second, path: "/v1/refund", body: `{"receipt":"RESERVATION"}`},
			{at: 3 * time.Second, path: "/v1/check", body: `{"policy":"tokens","identifier":"a","cost":40,"reserve_ms":30000}`},
			{at: 4 * time.Second, path: "/v1/record", body: `{"policy":"tokens","identifier":"a","cost":90,"reservation":"RESERVATION"}`},
			{at: 5 * time.Second, path: "/v1/check", body: `{"policy":"tokens","identifier":"b","cost":40,"reserve_ms":30000}`},
			{at: 6 * time.Second, path: "/v1/refund", body: `{"receipt":"RESERVATION"}`},
			{at: 7 * time.Second, path: "/v1/refund", body: `{"receipt":"RESERVATION"}`},
			{at: 7 * time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION","cost":40}`},
			{at: 8 * time.Second, path: "/v1/check", body: both(`,"reserve_ms":1000`)},
			{at: 8 * time.Second, path: "/v1/record", body: `{"demands":[{"policy":"signup-ip","identifier":"203.0.113.7","cost":0},` +
				strings.Replace(one, "}", `,"cost":2}`, 1) + `],"reservation":"RESERVATION"}`},
			{at: 8 * time.Second, path: "/v1/check", body: `{"policy":"tokens","identifier":"b","cost":40,"reserve_ms":1000}`},
			{at: 11 * time.Second, path: "/v1/record", body: `{"reservation":"RESERVATION","cost":13}`}, // after its end
		},
	} {
		tokens := policy.Policy{Name: "tokens", Limits: []policy.Limit{perMinute(100)}}
		tokens.Limits[0].Algorithm = "sliding-log"
		t.Run(name, func(t *testing.T) { newFront(t, nil, smsSend, signup, closed, shadow, off, tokens).story(name, steps) })
	}
}

// TestNothingOfACallIsLogged holds that the log has no part of calls and answers.
func TestNothingOfACallIsLogged(t *testing.T) {
	f := newFront(t, nil, smsSend, signup)
	const secret = "key-of-a-caller"
	keyed := func(policy string) string {
		return operationsOf(`{"op":"take","policy":"` + policy + `","identifier":"+4915112345678","idempotency_key":"` + secret + `"}`)
	}
	res := f.do(http.MethodPost, "/v1/take", one, "Idempotency-Key", secret)
	receipt := tokenMember.FindStringSubmatch(bodyOf(t, res))[2]
	f.do(http.MethodPost, "/v1/take", both(""), "Idempotency-Key", secret)
	f.do(http.MethodPost, "/v1/refund", `{"receipt":"`+receipt+`"}`)
	f.do(http.MethodPost, "/v1/refund", `{"receipt":"`+receipt+`"}`)
	f.do(http.MethodPost, "/v1/record", strings.Replace(one, "}", `,"reservation":"`+receipt+`"}`, 1))
	f.do(http.MethodPost, "/v1/batch", keyed("+4915112345678"))
	f.store.err = errStoreDown
	f.do(http.MethodPost, "/v1/take", one, "Idempotency-Key", secret)
	f.do(http.MethodPost, "/v1/refund", `{"receipt":"`+receipt+`"}`)
	f.do(http.MethodPost, "/v1/batch", keyed("sms-send"))
	for _, private := range []string{secret, receipt, "49151"} {
		if strings.Contains(f.log.String(), private) {
			t.Errorf("%q is in the log: %s", private, f.log)
		}
	}
	if n := strings.Count(f.log.String(), "msg=request"); n != 9 {
		t.Errorf("%d lines: %s", n, f.log)
	}
}
