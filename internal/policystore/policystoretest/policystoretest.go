// Package policystoretest is the test suite that every policystore.Store must pass.
package policystoretest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// SetOf returns a version with this text.
func SetOf(number int64, text string) *policystore.Set {
	return &policystore.Set{Text: []byte(text), Version: policystore.Version{
		Number: number, Digest: policystore.DigestOf([]byte(text)), At: time.Unix(number, 0).UTC(), By: "somebody", Policies: 1,
	}}
}

// Run holds store, which has no version yet.
func Run(t *testing.T, store policystore.Store) {
	latest := func(want int64) {
		t.Helper()
		if got, err := store.Latest(t.Context()); err != nil || got != want {
			t.Fatalf("the latest version is %d, %v, want %d", got, err, want)
		}
	}
	latest(0)
	if _, err := store.Read(t.Context(), 1); !errors.Is(err, policystore.ErrNoVersion) {
		t.Errorf("reading what is not there: %v", err)
	}
	if err := store.Put(t.Context(), 0, SetOf(1, "one")); err != nil {
		t.Fatal(err)
	}
	latest(1)
	if err := store.Put(t.Context(), 0, SetOf(1, "late")); !errors.Is(err, policystore.ErrConflict) {
		t.Errorf("a version that another one came before: %v", err)
	}
	longest := strings.Repeat("longest ", yamlfile.MaxSize/8)
	if err := store.Put(t.Context(), 1, SetOf(5, longest)); err != nil { // numbers may leave some out
		t.Fatal(err)
	}
	latest(5)
	for number, want := range map[int64]string{1: "one", 5: longest} {
		got, err := store.Read(t.Context(), number)
		if err != nil || string(got.Text) != want || got.Version != SetOf(number, want).Version {
			t.Errorf("version %d: %v, %v, %d bytes", number, got.Version, err, len(got.Text))
		}
	}
	oneWins(t, store)
	for number := int64(7); number <= policystore.Kept+2; number++ {
		if err := store.Put(t.Context(), number-1, SetOf(number, "many")); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := store.History(t.Context())
	if err != nil || kept[0].Number != policystore.Kept+2 || kept[0] != SetOf(policystore.Kept+2, "many").Version {
		t.Errorf("%d versions are kept, %v", len(kept), err)
	}
	if err := store.Put(t.Context(), policystore.Kept+2, SetOf(500, "beyond")); err != nil {
		t.Fatal(err)
	}
	for number := int64(501); number <= 505; number++ {
		if err := store.Put(t.Context(), number-1, SetOf(number, "beyond")); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err = store.History(t.Context()); err != nil || len(kept) != policystore.Kept {
		t.Errorf("%d versions are kept, %v, want %d", len(kept), err, policystore.Kept)
	}
	if _, err := store.Read(t.Context(), 1); !errors.Is(err, policystore.ErrNoVersion) {
		t.Errorf("the oldest version: %v", err)
	}
}

// oneWins has several make version 6 at the same time.
func oneWins(t *testing.T, store policystore.Store) {
	t.Helper()
	var won atomic.Int64
	var all sync.WaitGroup
	texts := []string{"a", "b", "c", "d"}
	for i, text := range texts {
		all.Go(func() {
			err := store.Put(t.Context(), 5, SetOf(6, text))
			switch {
			case err == nil:
				won.Add(int64(1 + 10*i))
			case !errors.Is(err, policystore.ErrConflict):
				t.Errorf("%s: %v", text, err)
			}
		})
	}
	all.Wait()
	got, err := store.Read(t.Context(), 6)
	if err != nil || won.Load()%10 != 1 || string(got.Text) != texts[won.Load()/10] {
		t.Errorf("%d won, the sum of their texts' places is %d, and the text is %q, %v", won.Load()%10, won.Load()/10, got.Text, err)
	}
}
