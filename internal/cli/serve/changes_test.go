package serve_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestReloadsSayWhatChanged in the log, and in that of audits.
func TestReloadsSayWhatChanged(t *testing.T) {
	policy := func(name, rest string) string {
		return "  - {name: " + name + ", " + rest + "}\n"
	}
	const ten = "limits: [{name: l, algorithm: sliding-log, limit: 10, window: 1h}]"
	policies := clitest.Write(t, "policies.yaml", "policies:\n"+policy("one", ten)+policy("two", ten)+policy("api", ten))
	caller := func(name, token, rest string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(token) + ", " + rest + "}\n"
	}
	callers := clitest.Write(t, "callers.yaml", "callers:\n"+caller("shop", "a", "scopes: [decide]")+caller("bank", "b", "scopes: [decide]")+
		caller("post", "p", "scopes: [decide]"))
	audits := filepath.Join(t.TempDir(), "audit")
	s := start(t, nil, "--policies="+policies, "--auth-file="+callers, "--audit-log="+audits)

	twenty := strings.Replace(ten, "10", "20", 1) + ", mode: shadow, on_store_error: allow, description: x"
	clitest.Rewrite(t, policies, "policies:\n"+policy("two", twenty)+policy("three", ten)+policy("api", ten))
	s.Log.WaitFor(t, "policies in force", 2)
	clitest.Rewrite(t, callers, "callers:\n"+caller("shop", "a", "scopes: [decide], policies: [api]")+caller("bank", "c", "scopes: [decide]")+
		caller("office", "d", "scopes: [decide]"))
	s.Log.WaitFor(t, "callers in force", 2)
	audited := func() string {
		text, err := os.ReadFile(audits)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	waitUntil(t, func() bool { return strings.Contains(audited(), "callers.reload") })
	for where, c := range map[string]struct {
		text  string
		wants []string
	}{
		"the log": {s.Log.String(), []string{
			`"policies in force" count=3 added=three removed=one changed="two: description, mode enforce -> shadow, ` +
				`on_store_error deny -> allow, l limit 10 -> 20"`,
			`"callers in force" count=3 added=office removed=post changed="bank; shop"`,
		}},
		"the audit log": {audited(), []string{
			`"added":["three"],"removed":["one"],"changed":["two: description, mode enforce -> shadow`,
			`"added":["office"],"removed":["post"],"changed":["bank","shop"]`,
		}},
	} {
		for _, want := range c.wants {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s has no %s:\n%s", where, want, c.text)
			}
		}
	}
	_, after, _ := strings.Cut(s.Log.String(), "policies in force")
	if first, _, _ := strings.Cut(after, "\n"); strings.Contains(first, "added") {
		t.Errorf("nothing changes at the start: %s", first)
	}
}
