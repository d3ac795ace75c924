package auth_test

import (
	"crypto/x509"
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/auth"
)

// wholeFiles are the same callers in two styles.
var wholeFiles = map[string]string{
	"blocks": `callers:
  - name: shop
    token_sha256: ` + auth.Digest("shop") + `
    scopes: [decide, record]
    policies:
      - api-internal
      - api
  - name: envoy
    certificate: shop.example.org.internal
    scopes:
      - decide
    policies: [api]
  - name: other
    scopes: [decide]
    policies: any
    certificate: shop.example.org.others
`,
	"lines": `callers:
  - {name: shop, token_sha256: ` + auth.Digest("shop") + `, scopes: [decide, record], policies: [api-internal, api]}
  - {name: envoy, certificate: shop.example.org.internal, scopes: [decide], policies: [api]}
  - {name: other, certificate: shop.example.org.others, scopes: [decide], policies: any}`,
}

// permits returns the permissions of callers with a token or a certificate, for the policies that a file may name.
func permits(c *auth.Callers) (all []string) {
	k := auth.NewKeyring(true)
	k.Set(c)
	shown := map[string]*x509.Certificate{"Bearer shop": nil}
	for i := range "shop.example.org.internal" {
		shown["shop.example.org.internal"[:i+1]] = &x509.Certificate{DNSNames: []string{"shop.example.org.internal"[:i+1]}}
	}
	shown["shop.example.org.others"] = &x509.Certificate{DNSNames: []string{"shop.example.org.others"}}
	for name, certificate := range shown {
		token := name
		if certificate != nil {
			token = ""
		}
		caller, err := k.Caller(token, certificate)
		if err != nil {
			continue
		}
		for _, scope := range []auth.Scope{auth.Decide, auth.Record, auth.Admin, auth.Metrics} {
			for _, policy := range []string{"api-internal", "api", "ap", "a", "another"} {
				if caller.May(scope) && caller.MayUse(policy) {
					all = append(all, name+" "+scope.String()+" "+policy)
				}
			}
		}
	}
	return all
}

// TestHalfAFilePermitsNoMore holds that no beginning of a file permits more than the whole file: a reload may read it
// while it is written.
func TestHalfAFilePermitsNoMore(t *testing.T) {
	for style, text := range wholeFiles {
		whole := permits(parse(t, text))
		if len(whole) != 10 {
			t.Errorf("%s: %q", style, whole)
		}
		read := 0
		for n := range len(text) {
			callers, err := auth.Parse("callers.yaml", []byte(text[:n]))
			if err != nil {
				continue
			}
			read++
			for _, p := range permits(callers) {
				if !slices.Contains(whole, p) {
					t.Errorf("%s: the first %d bytes permit %q:\n%s", style, n, p, text[:n])
				}
			}
		}
		if read == 0 {
			t.Errorf("%s: no beginning of it can be read", style)
		}
	}
}

// TestPoliciesAreSaid holds that callers without policies are reported.
func TestPoliciesAreSaid(t *testing.T) {
	c := func(name, rest string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", scopes: " + rest + "}\n"
	}
	callers := parse(t, "callers:\n"+c("all", "[admin], policies: any")+c("quoted", `[admin], policies: "any"`)+
		c("one", "[decide], policies: [any]")+c("none", "[decide]")+c("scraper", "[metrics]"))
	k := new(auth.Keyring)
	k.Set(callers)
	for name, want := range map[string][2]bool{
		"all": {true, true}, "quoted": {true, true}, "one": {true, false}, "none": {}, "scraper": {},
	} {
		caller, err := k.Caller("Bearer "+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := [...]bool{caller.MayUse("any"), caller.MayUse("api")}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if idle := callers.Idle(); !slices.Equal(idle, []string{"none"}) {
		t.Errorf("%v may use no policy", idle)
	}
}
