package api

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/audit"
)

// blockOne blocks the identifier of one.
var blockOne = strings.TrimSuffix(one, "}") + `,"kind":"block","expires_in_ms":3600000}`

// TestOverrides compares the answers about overrides of every kind, and the explanations, with those in testdata.
func TestOverrides(t *testing.T) {
	const somebody = `{"policy":"sms-send","identifier":"+4915112345678"}`
	set := func(members string) string { return strings.TrimSuffix(somebody, "}") + "," + members + "}" }
	f := newFront(t, nil, smsSend, shadow, off, blocks)
	f.story("overrides", []step{
		{path: "/v1/overrides/get", body: somebody},
		{path: "/v1/explain", body: somebody},
		{path: "/v1/overrides", body: set(`"kind":"block","expires_in_ms":60000`)},
		{at: time.Second, path: "/v1/take", body: somebody},
		{at: time.Second, path: "/v1/explain", body: somebody},
		{at: 2 * time.Second, path: "/v1/overrides", body: set(`"kind":"limits","limits":[{"name":"per-hour","limit":1}],"expires_in_ms":60000`)},
		{at: 3 * time.Second, path: "/v1/take", body: somebody},
		{at: 4 * time.Second, path: "/v1/take", body: somebody},
		{at: 4 * time.Second, path: "/v1/explain", body: somebody},
		{at: 5 * time.Second, path: "/v1/overrides", body: set(`"kind":"allow","expires_in_ms":60000`)},
		{at: 6 * time.Second, path: "/v1/take", body: somebody},
		{at: 6 * time.Second, path: "/v1/explain", body: somebody},
		{at: 6 * time.Second, path: "/v1/overrides/get", body: somebody},
		{at: 6 * time.Second, method: "GET", path: "/v1/overrides"},
		{at: 7 * time.Second, path: "/v1/overrides/delete", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides/delete", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides", body: set(`"kind":"block","expires_in_ms":null`)},
		{at: 7 * time.Second, path: "/v1/take", body: somebody},
		{at: 7 * time.Second, path: "/v1/explain", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides/delete", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides", body: `{"policy":"sms-send","prefix":"+4915","kind":"allow","expires_in_ms":null}`},
		{at: 7 * time.Second, path: "/v1/take", body: somebody},
		{at: 7 * time.Second, path: "/v1/explain", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides/get", body: somebody},
		{at: 7 * time.Second, path: "/v1/overrides/get", body: `{"policy":"sms-send","prefix":"+49"}`},
		{at: 7 * time.Second, method: "GET", path: "/v1/overrides"},
		{at: 7 * time.Second, path: "/v1/overrides/delete", body: `{"policy":"sms-send","prefix":"+4915"}`},
		{at: 8 * time.Second, path: "/v1/take", body: somebody},
		{at: 9 * time.Second, path: "/v1/reset", body: somebody},
		{at: 9 * time.Second, path: "/v1/explain", body: somebody},
		{at: 10 * time.Second, path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
		{at: 11 * time.Second, path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
		{at: 12 * time.Second, path: "/v1/explain", body: `{"policy":"blocks","identifier":"a"}`},
		{at: 13 * time.Second, path: "/v1/explain", body: `{"policy":"off","identifier":"a"}`},
		{at: 13 * time.Second, path: "/v1/explain", body: `{"policy":"shadow","identifier":"a"}`},
		{at: 13 * time.Second, path: "/v1/explain", body: `{"policy":"nowhere","identifier":"a"}`},
	})
}

// TestExplainsWithoutTheStore holds that an explanation names the rule that decides without the store.
func TestExplainsWithoutTheStore(t *testing.T) {
	f := newFront(t, nil, smsSend, lenient)
	f.store.err = errStoreDown
	for policy, want := range map[string]string{
		"sms-send": `"allowed":false,"would_allow":false,"because":"store","detail":"The store does not answer: on_store_error deny decides."`,
		"lenient":  `"allowed":true,"would_allow":true,"because":"store"`,
	} {
		body := bodyOf(t, f.do("POST", "/v1/explain", `{"policy":"`+policy+`","identifier":"a"}`))
		if !strings.Contains(body, want) || !strings.Contains(body, `"degraded":true`) || !strings.Contains(body, `"limits":[]`) {
			t.Errorf("%s: %s", policy, body)
		}
	}
}

// TestWrongOverrideBodies holds that wrong bodies are refused with the wrong field.
func TestWrongOverrideBodies(t *testing.T) {
	f := newFront(t, nil, smsSend)
	for body, field := range map[string]string{
		`{"identifier":"a","kind":"allow","expires_in_ms":1000}`:                                                        "policy",
		`{"policy":"sms-send","kind":"allow","expires_in_ms":1000}`:                                                     "identifier",
		`{"policy":"sms-send","identifier":"a","expires_in_ms":1000}`:                                                   "kind",
		`{"policy":"sms-send","identifier":"a","kind":"allow"}`:                                                         "expires_in_ms",
		`{"policy":"sms-send","identifier":"a","prefix":"a","kind":"allow","expires_in_ms":1000}`:                       "prefix",
		`{"policy":"sms-send","prefix":"","kind":"allow","expires_in_ms":1000}`:                                         "prefix",
		`{"policy":"sms-send","prefix":1,"kind":"allow","expires_in_ms":1000}`:                                          "prefix",
		`{"policy":"sms-send","prefix":"` + strings.Repeat("4", 16<<10) + `","kind":"allow","expires_in_ms":1000}`:      "prefix",
		`{"policy":"sms-send","prefix":"a","kind":"limits","expires_in_ms":1000}`:                                       "limits",
		`{"policy":"nowhere","prefix":"a","kind":"allow","expires_in_ms":1000}`:                                         "policy",
		`{"policy":"sms-send","identifier":"a","kind":"allow","expires_in_ms":"ever"}`:                                  "expires_in_ms",
		`{"policy":"sms-send","identifier":"a","kind":"allow","expires_in_ms":999}`:                                     "expires_in_ms",
		`{"policy":"sms-send","identifier":"a","kind":"allow","expires_in_ms":2678400001}`:                              "expires_in_ms",
		`{"policy":"sms-send","identifier":"a","kind":"forbid","expires_in_ms":1000}`:                                   "kind",
		`{"policy":"sms-send","identifier":"a","kind":"allow","expires_in_ms":1000,"cost":1}`:                           "cost",
		`{"policy":"sms-send","identifier":"a","kind":"limits","expires_in_ms":1000}`:                                   "limits",
		`{"policy":"sms-send","identifier":"a","kind":"limits","expires_in_ms":1000,"limits":{}}`:                       "limits",
		`{"policy":"sms-send","identifier":"a","kind":"limits","expires_in_ms":1000,"limits":[{"limit":1}]}`:            "limits[0].name",
		`{"policy":"sms-send","identifier":"a","kind":"limits","expires_in_ms":1000,"limits":[{"name":"per-hour"}]}`:    "limits[0].limit",
		`{"policy":"sms-send","identifier":"a","kind":"limits","expires_in_ms":1000,"limits":[{"name":"x","limit":1}]}`: "limits[0].name",
		`{"policy":"nowhere","identifier":"a","kind":"allow","expires_in_ms":1000}`:                                     "policy",
	} {
		res := f.do("POST", "/v1/overrides", body)
		if text := bodyOf(t, res); !strings.Contains(text, `"field":"`+field+`"`) || res.StatusCode < 400 || res.StatusCode > 404 {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
}

// audited returns the lines of an audit log.
func audited(t *testing.T, log *bytes.Buffer) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(log.String()) {
		var read map[string]any
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, read)
	}
	return lines
}

// TestAuditLog holds that all actions of an administrator, and refusals, are in the audit log.
func TestAuditLog(t *testing.T) {
	var log bytes.Buffer
	f := newFront(t, &Options{
		Keyring: keyring(t, "operator scopes: [admin]", "shop scopes: [decide], policies: [api]"),
	}, smsSend, tail)
	f.server.opts.Audit = audit.New(slog.New(slog.NewJSONHandler(&log, nil)), f.now)
	const secret = "+4915112345678"
	about := `{"policy":"sms-send","identifier":"` + secret + `"}`
	key, _ := f.server.engine.KeyOf("sms-send", secret)
	for _, c := range []struct {
		path, body, as string
		want           map[string]any
	}{
		{"/v1/reset", about, "operator", map[string]any{"act": "reset", "who": "operator", "outcome": "done", "policy": "sms-send"}},
		{"/v1/explain", about, "operator", map[string]any{"act": "explain", "outcome": "done"}},
		{"/v1/overrides", strings.TrimSuffix(about, "}") + `,"kind":"allow","expires_in_ms":1000}`, "operator",
			map[string]any{"act": "override.set", "kind": "allow", "expires_at": "2026-03-01T12:00:04Z", "outcome": "done"}},
		{"/v1/overrides", strings.TrimSuffix(about, "}") + `,"kind":"allow","expires_in_ms":null}`, "operator",
			map[string]any{"act": "override.set", "kind": "allow", "expires_at": nil, "outcome": "done"}},
		{"/v1/overrides", `{"policy":"sms-send","prefix":"+49","kind":"allow","expires_in_ms":null}`, "operator",
			map[string]any{"act": "override.set", "kind": "allow", "key": nil, "prefix": "+49", "policy": "sms-send", "outcome": "done"}},
		{"/v1/overrides", `{"policy":"sms-send","kind":"allow","expires_in_ms":null,"prefix":"` + secret + strings.Repeat("4", 64) + `"}`,
			"operator",
			map[string]any{"act": "override.set", "key": nil, "prefix": nil, "policy": "sms-send", "outcome": "failed", "status": 400.0}},
		{"/v1/overrides/delete", `{"policy":"sms-send","prefix":"+49"}`, "operator",
			map[string]any{"act": "override.delete", "key": nil, "prefix": "+49", "policy": "sms-send", "outcome": "done"}},
		{"/v1/overrides", strings.TrimSuffix(about, "}") + `,"kind":"no","expires_in_ms":1000}`, "operator",
			map[string]any{"act": "override.set", "outcome": "failed", "status": 400.0, "kind": nil}},
		{"/v1/overrides", strings.TrimSuffix(about, "}") + `,"kind":"` + secret + `","expires_in_ms":1000}`, "operator",
			map[string]any{"act": "override.set", "outcome": "failed", "status": 400.0}},
		{"/v1/overrides", strings.TrimSuffix(about, "}") +
			`,"kind":"limits","limits":[{"name":"` + secret + `","limit":1}],"expires_in_ms":1000}`, "operator",
			map[string]any{"act": "override.set", "outcome": "failed", "status": 400.0}},
		{"/v1/overrides/delete", about, "operator", map[string]any{"act": "override.delete", "outcome": "done"}},
		{"/v1/reset", `{"policy":"` + secret + `","identifier":"a"}`, "operator",
			map[string]any{"act": "reset", "outcome": "failed", "status": 404.0, "policy": nil, "key": nil}},
		{"/v1/reset", about, "shop", map[string]any{"act": "access", "who": "shop", "outcome": "refused", "route": "/v1/reset"}},
		{"/v1/take", about, "shop", map[string]any{"act": "access", "who": "shop", "outcome": "refused", "reason": "not permitted"}},
		{"/v1/batch", operationsOf(`{"op":"take","policy":"sms-send","identifier":"a"}`), "shop",
			map[string]any{"act": "access", "who": "shop", "route": "/v1/batch"}},
		{"/v1/take", about, "stranger", map[string]any{"act": "access", "who": "anonymous", "reason": "the bearer token is not known"}},
	} {
		f.set(f.now().Add(time.Second)) // later than the last refusal
		log.Reset()
		f.do("POST", c.path, c.body, bearer(c.as)...)
		lines := audited(t, &log)
		if len(lines) != 1 || lines[0]["msg"] != audit.Message || lines[0]["request_id"] != "test" {
			t.Errorf("%s by %s: %v", c.path, c.as, lines)
			continue
		}
		if _, wanted := c.want["key"]; !wanted && c.as == "operator" {
			c.want["key"] = hex.EncodeToString(key.Bytes())[:keyDigits]
		}
		for name, want := range c.want {
			if got := lines[0][name]; got != want {
				t.Errorf("%s by %s: %s is %v, want %v", c.path, c.as, name, got, want)
			}
		}
		if strings.Contains(log.String(), secret) || strings.Contains(log.String(), secret[1:]) || strings.Contains(log.String(), "Bearer") {
			t.Errorf("%s by %s: %s", c.path, c.as, log.String())
		}
	}
	log.Reset()
	f.set(f.now().Add(time.Second))
	for range 50 {
		f.do("POST", "/v1/take", about, bearer("stranger")...)
	}
	f.set(f.now().Add(time.Second))
	f.do("POST", "/v1/take", about, bearer("stranger")...)
	if lines := audited(t, &log); len(lines) != 2 || lines[0]["refused_before"] != 0.0 || lines[1]["refused_before"] != 49.0 {
		t.Errorf("of 51 refusals within two seconds: %v", lines)
	}
	log.Reset()
	f.do("POST", "/v1/take", `{"policy":"api","identifier":"a"}`, bearer("shop")...)
	if log.Len() > 0 {
		t.Errorf("what is permitted is nobody's business: %s", log.String())
	}
}
