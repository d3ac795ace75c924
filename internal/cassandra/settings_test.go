package cassandra_test

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"
)

func TestSettingsAreKeptApartByNamespaceAndExpire(t *testing.T) {
	store := newStore(t, commonConfig(t))
	shop, office := store.Settings(rand.Text()), store.Settings(rand.Text())
	published := func() (texts []string) {
		t.Helper()
		all, err := shop.Published(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range all {
			texts = append(texts, string(text))
		}
		slices.Sort(texts)
		return texts
	}
	publish := func(id, text string, lasts time.Duration) {
		t.Helper()
		if err := shop.Publish(t.Context(), id, []byte(text), lasts); err != nil {
			t.Fatal(err)
		}
	}
	publish("a", "first", time.Minute)
	publish("a", "second", time.Minute)
	publish("b", "other", time.Minute)
	publish("c", "of one that dies", time.Second)
	if err := office.Publish(t.Context(), "a", []byte("office"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := published(); len(got) < 2 || got[len(got)-1] != "second" || slices.Contains(got, "first") || slices.Contains(got, "office") {
		t.Errorf("published is %q", got)
	}
	if err := shop.Withdraw(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(10 * time.Second); !slices.Equal(published(), []string{"second"}); <-time.After(100 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("published is %q, want the second of a", published())
		}
	}
}
