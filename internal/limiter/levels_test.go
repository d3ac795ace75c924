package limiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func TestScopeOfLevels(t *testing.T) {
	for _, c := range []struct {
		write, read policy.Level
		scope       policy.Scope
		caveat      string // a word of it
	}{
		{"QUORUM", "QUORUM", policy.ScopeCluster, ""},
		{"LOCAL_QUORUM", "LOCAL_QUORUM", policy.ScopeDatacenter, "each data centre"},
		{"EACH_QUORUM", "LOCAL_QUORUM", policy.ScopeCluster, ""},
		{"EACH_QUORUM", "QUORUM", policy.ScopeCluster, ""},
		{"ALL", "ONE", policy.ScopeCluster, ""},
		{"ONE", "ALL", policy.ScopeCluster, ""},
		{"TWO", "TWO", policy.ScopeCluster, "replication factor of 3"},
		{"THREE", "ONE", policy.ScopeCluster, "replication factor of 3"},
		{"TWO", "ONE", policy.ScopeNone, "may miss"},
		{"ONE", "ONE", policy.ScopeNone, "may miss"},
		{"LOCAL_ONE", "LOCAL_QUORUM", policy.ScopeNone, "may miss"},
		{"LOCAL_QUORUM", "QUORUM", policy.ScopeNone, "may miss"},
		{"ANY", "ALL", policy.ScopeNone, "promises nothing"},
	} {
		levels := policy.Consistency{Write: c.write, Read: c.read}
		if got := levels.Scope(); got != c.scope {
			t.Errorf("write %s, read %s: scope %s, want %s", c.write, c.read, got, c.scope)
		}
		if got := levels.Caveat(); (got == "") != (c.caveat == "") || !strings.Contains(got, c.caveat) {
			t.Errorf("write %s, read %s: caveat %q, want a word of %q", c.write, c.read, got, c.caveat)
		}
	}
}

func TestPromiseOfAStoreWithOneCopyHasNoCaveat(t *testing.T) {
	p := policyOf("sliding-log", 1, time.Minute)
	alone, shared := newEngine(t, embedded.New(nil), 0, p), newEngine(t, newFakeStore(), 0, p)
	if scope, caveat := alone.Promise(alone.Policies()[0]); scope != policy.ScopeCluster || caveat != "" {
		t.Errorf("one copy: %s, %q", scope, caveat)
	}
	if scope, caveat := shared.Promise(shared.Policies()[0]); scope != policy.ScopeDatacenter || caveat == "" {
		t.Errorf("shared, LOCAL_QUORUM: %s, %q", scope, caveat)
	}
}

func TestWindowsAsText(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s": time.Second, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "1h": time.Hour, "1.5s": 1500 * time.Millisecond,
		"24h": 24 * time.Hour, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "31d": 31 * 24 * time.Hour,
	} {
		got, err := policy.ParseWindow(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		if again, err := policy.ParseWindow(policy.FormatWindow(want)); err != nil || again != want {
			t.Errorf("%v is written %q and read %v, %v", want, policy.FormatWindow(want), again, err)
		}
	}
	for _, text := range []string{"", "1", "d", "-1s", "+1s", "1d-1h", "1 d", "1dd", "1h1d", "1.5d", "99999999d", "1d 1h", "forever"} {
		if got, err := policy.ParseWindow(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestKeys(t *testing.T) {
	secret := func(id, text string) *keys.HashKey { return &keys.HashKey{ID: id, Secret: []byte(text)} }
	space := keys.KeySpace{Policy: "p", Guarantee: policy.GuaranteeCounted}
	base := keys.Keyer{Namespace: "n"}
	seen := map[store.Key]string{base.For(space).Of("id"): "the first"}
	for name, key := range map[string]store.Key{
		"another identifier": base.For(space).Of("id2"),
		"another policy":     base.For(keys.KeySpace{Policy: "q", Guarantee: policy.GuaranteeCounted}).Of("id"),
		"another guarantee":  base.For(keys.KeySpace{Policy: "p", Guarantee: policy.GuaranteeLocal}).Of("id"),
		"another scope":      base.For(keys.KeySpace{Policy: "p", Guarantee: policy.GuaranteeCounted, Scope: "dc1"}).Of("id"),
		"another namespace":  (&keys.Keyer{Namespace: "m"}).For(space).Of("id"),
		"parts moved":        (&keys.Keyer{Namespace: "np"}).For(keys.KeySpace{Guarantee: policy.GuaranteeCounted}).Of("id"),
		"a secret":           (&keys.Keyer{Namespace: "n", Secret: secret("1", "0123456789abcdef")}).For(space).Of("id"),
		"another secret":     (&keys.Keyer{Namespace: "n", Secret: secret("1", "fedcba9876543210")}).For(space).Of("id"),
		"another secret id":  (&keys.Keyer{Namespace: "n", Secret: secret("2", "0123456789abcdef")}).For(space).Of("id"),
	} {
		if other, twice := seen[key]; twice {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[key] = name
	}
	if first, second := base.For(space).Of("id"), base.For(space).Of("id"); first != second {
		t.Error("the same parts have different keys")
	}
}
