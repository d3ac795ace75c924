package auth_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/auth"
)

func parse(t *testing.T, text string) *auth.Callers {
	t.Helper()
	callers, err := auth.Parse("callers.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return callers
}

// TestZeroKeyring holds that the zero Keyring has no authentication.
func TestZeroKeyring(t *testing.T) {
	var k auth.Keyring
	for _, shown := range []string{"", "Bearer x", "Basic x"} {
		c, err := k.Caller(shown, nil)
		if err != nil || !c.May(auth.Admin) || !c.MayUse("any") || c.Name != "" {
			t.Errorf("%q: %+v, %v", shown, c, err)
		}
	}
	if !k.Open() || auth.NewKeyring(true).Open() {
		t.Error("the zero Keyring is open, and one of a server that asks for certificates is not")
	}
}

// TestCertificates holds which caller a certificate identifies.
func TestCertificates(t *testing.T) {
	spiffe, _ := url.Parse("spiffe://example.org/envoy")
	named := func(common string, names ...string) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: common}, DNSNames: names}
	}
	k := auth.NewKeyring(true)
	if c, err := k.Caller("", named("any")); err != nil || !c.May(auth.Admin) {
		t.Errorf("without a list, a certificate permits everything: %+v, %v", c, err)
	}
	k.Set(parse(t, `callers:
  - {name: envoy, certificate: "spiffe://example.org/envoy", scopes: [decide]}
  - {name: shop, certificate: shop.example.org, scopes: [record]}
  - {name: old, certificate: old-name, scopes: [metrics]}
  - {name: token, token_sha256: `+auth.Digest("t")+`, scopes: [admin]}
`))
	for _, c := range []struct {
		certificate *x509.Certificate
		shown, want string // the caller's name; empty: nobody
	}{
		{&x509.Certificate{URIs: []*url.URL{spiffe}}, "", "envoy"},
		{named("", "else.example.org", "shop.example.org"), "", "shop"},
		{named("old-name"), "", "old"},
		{named("old-name", "else.example.org"), "", ""}, // a common name counts only where there is no other
		{named("spiffe://example.org/envoy"), "", ""},   // a common name is no URI
		{named("", "spiffe://example.org/envoy"), "", ""},
		{&x509.Certificate{URIs: []*url.URL{{Path: "shop.example.org"}}}, "", ""},
		{named("old-name"), "Bearer t", "token"},
		{named("old-name"), "Bearer u", ""}, // who shows a token is not known by a certificate
		{nil, "", ""},
	} {
		got, err := k.Caller(c.shown, c.certificate)
		switch {
		case c.want == "" && !errors.Is(err, auth.ErrUnauthenticated):
			t.Errorf("%+v %q: %+v, %v", c.certificate, c.shown, got, err)
		case c.want != "" && (err != nil || got.Name != c.want):
			t.Errorf("%+v %q: %+v, %v, want %s", c.certificate, c.shown, got, err, c.want)
		}
	}
}

// TestAFileThatIsHalfWritten holds that a file that is half written does not permit more than the whole one.
func TestAFileThatIsHalfWritten(t *testing.T) {
	file := "callers:\n  - name: shop\n    token_sha256: " + auth.Digest("t") + "\n    scopes:\n      - decide\n" +
		"      - record\n    policies:\n      - api\n      - login\n"
	taken := 0
	for end := range len(file) + 1 {
		callers, err := auth.Parse("callers.yaml", []byte(file[:end]))
		if err != nil {
			continue
		}
		taken++
		var k auth.Keyring
		k.Set(callers)
		c, err := k.Caller("Bearer t", nil)
		if err == nil && (c.MayUse("sms-send") || c.May(auth.Admin|auth.Metrics)) {
			t.Errorf("%q permits more than the whole file", file[:end])
		}
	}
	if taken == 0 {
		t.Error("no half is taken for a file")
	}
}

// TestPolicies holds that a caller may use the listed policies, any, or none.
func TestPolicies(t *testing.T) {
	line := func(name, policies string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", scopes: [decide]" + policies + "}\n"
	}
	callers := parse(t, "callers:\n"+line("all", ", policies: any")+line("some", ", policies: [api]")+line("word", ", policies: [any]")+
		line("none", "")+"  - {name: scraper, token_sha256: "+auth.Digest("s")+", scopes: [metrics]}\n")
	var k auth.Keyring
	k.Set(callers)
	for name, want := range map[string]bool{"all": true, "some": false, "word": false, "none": false} {
		c, err := k.Caller("Bearer "+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.MayUse("login") != want || c.MayUse("api") != (want || name == "some") || c.MayUse("any") != (want || name == "word") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if names := callers.Idle(); !slices.Equal(names, []string{"none"}) {
		t.Errorf("%v have none", names)
	}
}

// TestNewTokens holds that a new token is known by its digest, and differs from others.
func TestNewTokens(t *testing.T) {
	one, other := auth.NewToken(), auth.NewToken()
	if one == other || !strings.HasPrefix(one, auth.TokenPrefix) || len(one) < 40 {
		t.Errorf("%q and %q", one, other)
	}
	var k auth.Keyring
	k.Set(parse(t, "callers:\n  - {name: a, token_sha256: "+auth.Digest(one)+", scopes: [decide]}\n"))
	c, err := k.Caller("Bearer "+one, nil)
	if err != nil || c.Name != "a" || c.May(auth.Record|auth.Admin|auth.Metrics) || !c.May(auth.Decide) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := k.Caller("Bearer "+other, nil); !errors.Is(err, auth.ErrUnknownToken) {
		t.Errorf("another token: %v", err)
	}
}

// TestMistakes holds that all mistakes of a file are reported at once, each with its line, and without text that may be
// a token.
func TestMistakes(t *testing.T) {
	digest := auth.Digest("t")
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "1: there is nothing in this file"},
		{"no list", "callers: 5\n", "1: callers: a number where a list belongs"},
		{"no callers", "callers: []\n", "1: callers: 0 callers"},
		{"another key", "tokens: []\n", "1: tokens: unknown key: known ones: callers"},
		{"no name", "callers:\n  - {token_sha256: " + digest + ", scopes: [decide]}\n", "2: callers[0].name: missing"},
		{"odd name", "callers:\n  - {name: a b, token_sha256: " + digest + ", scopes: [decide]}\n", "2: callers[0].name: \"a b\" is not a name"},
		{"two of a name", "callers:\n  - {name: a, token_sha256: " + digest + ", scopes: [decide]}\n" +
			"  - {name: a, certificate: x, scopes: [decide]}\n", "3: callers[1].name: \"a\" names the caller on line 2 too"},
		{"two of a token", "callers:\n  - {name: a, token_sha256: " + digest + ", scopes: [decide]}\n" +
			"  - {name: b, token_sha256: " + digest + ", scopes: [decide]}\n", "3: callers[1].token_sha256: the caller a has the same token"},
		{"two of a certificate", "callers:\n  - {name: a, certificate: x, scopes: [decide]}\n" +
			"  - {name: b, certificate: x, scopes: [decide]}\n", "3: callers[1].certificate: the caller a has the same certificate"},
		{"both", "callers:\n  - {name: a, certificate: x, token_sha256: " + digest + ", scopes: [decide]}\n", "has a token already"},
		{"neither", "callers:\n  - {name: a, scopes: [decide]}\n", "2: callers[0].token_sha256: missing"},
		{"no scopes", "callers:\n  - {name: a, certificate: x}\n", "2: callers[0].scopes: missing"},
		{"empty scopes", "callers:\n  - {name: a, certificate: x, scopes: []}\n", "there are no scopes"},
		{"another scope", "callers:\n  - {name: a, certificate: x, scopes: [decided]}\n", "did you mean decide?"},
		{"scope twice", "callers:\n  - {name: a, certificate: x, scopes: [decide, decide]}\n", "decide is given twice"},
		{"empty policies", "callers:\n  - {name: a, certificate: x, scopes: [decide], policies: []}\n", "there are no policies"},
		{"policies without a list", "callers:\n  - {name: a, certificate: x, scopes: [decide], policies: api}\n", "text where a list belongs"},
		{"a mistyped key", "callers:\n  - {name: a, certificate: x, scopes: [decide], polices: [api]}\n", "did you mean policies?"},
		{"a token for a key", "callers:\n  - rld_SECRET: shop\n", "rld_…: unknown key"},
		{"a token for a name", "callers:\n  - {name: rld_SECRET, scopes: [decide]}\n", "that is a token"},
		{"a token for a scope", "callers:\n  - {name: a, scopes: [rld_SECRET]}\n", "is not a scope"},
		{"a token for all", "rld_SECRET: a\n", "rld_…: unknown key"},
		{"a token", "callers:\n  - {name: a, token_sha256: rld_SECRET, scopes: [decide]}\n", "that is a token itself"},
		{"a password", "callers:\n  - {name: a, token_sha256: SECRET, scopes: [decide]}\n", "that is not a SHA-256"},
		{"too short", "callers:\n  - {name: a, token_sha256: " + digest[2:] + ", scopes: [decide]}\n", "that is not a SHA-256"},
		{"too long", "callers:\n  - {name: a, token_sha256: " + digest + "00, scopes: [decide]}\n", "that is not a SHA-256"},
	} {
		callers, err := auth.Parse("callers.yaml", []byte(c.text))
		if err == nil || callers != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		} else if strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: the error tells the secret: %v", c.name, err)
		}
	}
}

// TestScopeNames holds that all names of scopes can be parsed.
func TestScopeNames(t *testing.T) {
	if names := auth.ScopeNames(); !slices.Equal(names, []string{"decide", "record", "admin", "metrics"}) {
		t.Errorf("%v", names)
	}
	if got := (auth.Decide | auth.Admin).String(); got != "decide or admin" {
		t.Errorf("%q", got)
	}
}

// FuzzParse holds that no file makes callers without scopes.
func FuzzParse(f *testing.F) {
	f.Add("callers:\n  - {name: a, token_sha256: "+auth.Digest("t")+", scopes: [decide], policies: [p]}\n", "t")
	f.Add("callers:\n  - name: b\n    certificate: x\n    scopes: [admin]\n", "")
	f.Fuzz(func(t *testing.T, text, token string) {
		callers, err := auth.Parse("callers.yaml", []byte(text))
		if (err == nil) != (callers != nil) {
			t.Fatalf("%v, %v", callers, err)
		}
		if err != nil {
			return
		}
		var k auth.Keyring
		k.Set(callers)
		if c, err := k.Caller("Bearer "+token, nil); err == nil && (c.Name == "" || c.MayUse("a") && !strings.Contains(text, "policies")) {
			t.Fatalf("%q: %+v", token, c)
		}
	})
}
