package limiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func TestScopeOfLevels(t *testing.T) {
	for _, c := range []struct {
		write, read limiter.Level
		scope       limiter.Scope
		caveat      string // a word of it
	}{
		{"QUORUM", "QUORUM", limiter.ScopeCluster, ""},
		{"LOCAL_QUORUM", "LOCAL_QUORUM", limiter.ScopeDatacenter, "each data centre"},
		{"EACH_QUORUM", "LOCAL_QUORUM", limiter.ScopeCluster, ""},
		{"EACH_QUORUM", "QUORUM", limiter.ScopeCluster, ""},
		{"ALL", "ONE", limiter.ScopeCluster, ""},
		{"ONE", "ALL", limiter.ScopeCluster, ""},
		{"TWO", "TWO", limiter.ScopeCluster, "replication factor of 3"},
		{"THREE", "ONE", limiter.ScopeCluster, "replication factor of 3"},
		{"TWO", "ONE", limiter.ScopeNone, "may miss"},
		{"ONE", "ONE", limiter.ScopeNone, "may miss"},
		{"LOCAL_ONE", "LOCAL_QUORUM", limiter.ScopeNone, "may miss"},
		{"LOCAL_QUORUM", "QUORUM", limiter.ScopeNone, "may miss"},
		{"ANY", "ALL", limiter.ScopeNone, "promises nothing"},
	} {
		levels := limiter.Consistency{Write: c.write, Read: c.read}
		if got := levels.Scope(); got != c.scope {
			t.Errorf("write %s, read %s: scope %s, want %s", c.write, c.read, got, c.scope)
		}
		if got := levels.Caveat(); (got == "") != (c.caveat == "") || !strings.Contains(got, c.caveat) {
			t.Errorf("write %s, read %s: caveat %q, want a word of %q", c.write, c.read, got, c.caveat)
		}
	}
}

func TestPromiseOfAStoreWithOneCopyHasNoCaveat(t *testing.T) {
	policy := policyOf("sliding-log", 1, time.Minute)
	alone, shared := newEngine(t, embedded.New(nil), 0, policy), newEngine(t, newFakeStore(), 0, policy)
	if scope, caveat := alone.Promise(alone.Policies()[0]); scope != limiter.ScopeCluster || caveat != "" {
		t.Errorf("one copy: %s, %q", scope, caveat)
	}
	if scope, caveat := shared.Promise(shared.Policies()[0]); scope != limiter.ScopeDatacenter || caveat == "" {
		t.Errorf("shared, LOCAL_QUORUM: %s, %q", scope, caveat)
	}
}

func TestWindowsAsText(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1s": time.Second, "90s": 90 * time.Second, "1m30s": 90 * time.Second, "1h": time.Hour, "1.5s": 1500 * time.Millisecond,
		"24h": 24 * time.Hour, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "31d": 31 * 24 * time.Hour,
	} {
		got, err := limiter.ParseWindow(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
		if again, err := limiter.ParseWindow(limiter.FormatWindow(want)); err != nil || again != want {
			t.Errorf("%v is written %q and read %v, %v", want, limiter.FormatWindow(want), again, err)
		}
	}
	for _, text := range []string{"", "1", "d", "-1s", "+1s", "1d-1h", "1 d", "1dd", "1h1d", "1.5d", "99999999d", "1d 1h", "forever"} {
		if got, err := limiter.ParseWindow(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestKeys(t *testing.T) {
	secret := func(id, text string) *limiter.HashKey { return &limiter.HashKey{ID: id, Secret: []byte(text)} }
	space := limiter.KeySpace{Policy: "p", Guarantee: limiter.GuaranteeCounted}
	base := limiter.Keyer{Namespace: "n"}
	seen := map[limiter.Key]string{base.For(space).Of("id"): "the first"}
	for name, key := range map[string]limiter.Key{
		"another identifier": base.For(space).Of("id2"),
		"another policy":     base.For(limiter.KeySpace{Policy: "q", Guarantee: limiter.GuaranteeCounted}).Of("id"),
		"another guarantee":  base.For(limiter.KeySpace{Policy: "p", Guarantee: limiter.GuaranteeSerial}).Of("id"),
		"another scope":      base.For(limiter.KeySpace{Policy: "p", Guarantee: limiter.GuaranteeCounted, Scope: "dc1"}).Of("id"),
		"another namespace":  (&limiter.Keyer{Namespace: "m"}).For(space).Of("id"),
		"parts moved":        (&limiter.Keyer{Namespace: "np"}).For(limiter.KeySpace{Guarantee: limiter.GuaranteeCounted}).Of("id"),
		"a secret":           (&limiter.Keyer{Namespace: "n", Secret: secret("1", "0123456789abcdef")}).For(space).Of("id"),
		"another secret":     (&limiter.Keyer{Namespace: "n", Secret: secret("1", "fedcba9876543210")}).For(space).Of("id"),
		"another secret id":  (&limiter.Keyer{Namespace: "n", Secret: secret("2", "0123456789abcdef")}).For(space).Of("id"),
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
