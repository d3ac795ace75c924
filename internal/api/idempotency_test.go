package api

import (
	"regexp"
	"testing"
)

// TestIdempotencyKeysOfCallers holds that two callers may use one key, and neither gets the answer to the other.
func TestIdempotencyKeysOfCallers(t *testing.T) {
	keys := keyring(t, "shop scopes: [decide, record]", "thief scopes: [decide, record]")
	receipt := regexp.MustCompile(`"receipt":"([^"]+)"`)
	const key, other = "order-2", `{"policy":"api","identifier":"b"}`
	inBatch := func(demand string) string {
		return operationsOf(`{"op":"take","idempotency_key":"order-2",` + demand[1:])
	}
	for name, c := range map[string]struct {
		path, body, another string
		headers             []string
	}{
		"take":   {"/v1/take", one, other, []string{"Idempotency-Key", key}},
		"record": {"/v1/record", one, other, []string{"Idempotency-Key", key + " r"}},
		"batch":  {"/v1/batch", inBatch(one), inBatch(other), nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFront(t, &Options{Keyring: keys}, smsSend, tail)
			ask := func(who, body string) (receipts string, whole string) {
				t.Helper()
				res := f.do("POST", c.path, body, append(bearer(who), c.headers...)...)
				whole = bodyOf(t, res)
				found := receipt.FindStringSubmatch(whole)
				if res.StatusCode != 200 || found == nil {
					t.Fatalf("%s: %d %s", who, res.StatusCode, whole)
				}
				return found[1], whole
			}
			mine, _ := ask("shop", c.body)
			theirs, body := ask("thief", c.body)
			if mine == theirs {
				t.Errorf("the receipt of another caller: %s", body)
			}
			if again, _ := ask("shop", c.body); again != mine {
				t.Error("a repetition has another receipt")
			}
			if res := f.do("POST", "/v1/refund", `{"receipt":"`+theirs+`"}`, bearer("thief")...); res.StatusCode != 200 {
				t.Errorf("refund: %d", res.StatusCode)
			}
			if res := f.do("POST", "/v1/refund", `{"receipt":"`+mine+`"}`, bearer("shop")...); res.StatusCode != 200 {
				t.Errorf("refund of what another one asked for likewise: %d", res.StatusCode)
			}
		})
		t.Run(name+" of something else", func(t *testing.T) {
			f := newFront(t, &Options{Keyring: keys}, smsSend, tail)
			for who, body := range map[string]string{"thief": c.another, "shop": c.body} {
				if res := f.do("POST", c.path, body, append(bearer(who), c.headers...)...); receipt.FindString(bodyOf(t, res)) == "" {
					t.Errorf("%s: %d", who, res.StatusCode)
				}
			}
		})
	}
}
