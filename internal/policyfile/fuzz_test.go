package policyfile_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// FuzzParse holds that whatever is in a file Parse returns, that what it accepts
// can be served, and that Format writes it back.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"default.yaml", "testdata/ten-mistakes.yaml", "testdata/every-kind.yaml", "testdata/envoy.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(written(goodLimits, "description: \"a: b, {c} # \\u0001 é\"", "consistency: {write: quorum, read: ONE}")))
	f.Add([]byte(written(goodLimits, "description: |", "  two", "  lines")))
	f.Add([]byte(limit("algorithm: sliding-tail, limit: 5, window: 1500ms, rounding: up")))
	f.Add([]byte(limit("algorithm: token-bucket, limit: 5, window: 1m, burst: 9")))
	f.Add([]byte(limit("algorithm: fixed-window, limit: 5, window: month, timezone: Etc/GMT+5")))
	f.Add([]byte(descriptors("- {key: 'a: b', value: '*', policy: api, name: '#1', identifier: 'a: b',",
		"   descriptors: [{key: c, unlimited: true}]}")))
	f.Add([]byte("{\"policies\": [&a {name: x}, *a]}\n---\n"))
	f.Add([]byte(withIdentifiers("normalize: {e164: {region: NO}}", "derive: [{policy: country, from: {prefix: 5}}]")))
	f.Add([]byte(withIdentifiers("normalize: ip", "derive: [{policy: net, from: {ip-prefix: 24}}]")))
	f.Add([]byte(withNumbers(`by: {DE: 5, "+800": 0, default: 1}`, `countries: {deny: [FR, "NO"]}`, "number_types: {allow: [mobile]}")))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policyfile.ParseFile("p.yaml", data)
		policies := file.Policies
		if (err == nil) != (len(policies) > 0) {
			t.Fatalf("%d policies with error %v", len(policies), err)
		}
		want := make([]policy.Policy, len(policies))
		for i, p := range policies {
			if problems := p.Problems(); len(problems) > 0 {
				t.Fatalf("accepted a policy with %v", problems)
			}
			want[i] = p.WithDefaults()
		}
		if err != nil {
			return
		}
		text := policyfile.FormatFile(file)
		again, err := policyfile.ParseFile("formatted.yaml", text)
		if err != nil || !reflect.DeepEqual(again, policyfile.File{Policies: want, Envoy: file.Envoy}) {
			t.Fatalf("formatted as\n%s\nread back as %+v, %v\nwant %+v", text, again, err, want)
		}
	})
}

func TestFormatFillsInDefaults(t *testing.T) {
	policies, err := policyfile.Parse("p.yaml", []byte(limit("algorithm: sliding-tail, limit: 5, window: 24h")))
	if err != nil {
		t.Fatal(err)
	}
	const want = `policies:
  - name: p
    limits:
      - {name: sliding-tail-1d, algorithm: sliding-tail, limit: 5, window: 1d, rounding: down}
    count: admitted
    counting: rows
    guarantee: counted
    mode: enforce
    on_store_error: deny
`
	if got := string(policyfile.Format(policies)); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestFormatReadsBack prints a policy of each kind, and reads it back.
func TestFormatReadsBack(t *testing.T) {
	policies, err := policyfile.Load("testdata/every-kind.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := policyfile.Format(policies)
	golden(t, "testdata/every-kind.golden", string(text))
	again, err := policyfile.Parse("formatted.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range policies {
		if !reflect.DeepEqual(again[i], p.WithDefaults()) {
			t.Errorf("read back as %+v, want %+v", again[i], p.WithDefaults())
		}
	}
	if twice := policyfile.Format(again); string(twice) != string(text) {
		t.Errorf("printed again as\n%s\nwant\n%s", twice, text)
	}
}
