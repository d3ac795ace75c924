package inprocess

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// away is a store that answers nothing.
type away struct{}

// Read waits as long as it may.
func (away) Read(ctx context.Context, _ *store.Query) (store.State, error) {
	<-ctx.Done()
	return store.State{}, store.ErrUnavailable
}

// Write does, too.
func (away) Write(ctx context.Context, _ *store.Write) error {
	<-ctx.Done()
	return store.ErrUnavailable
}

func (a away) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, a, w, wrote)
}

func (a away) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, a, w, q)
}

// OpenAway decides by policies over a store that does not answer, until the test ends.
func OpenAway(t *testing.T, policies string) *Limits {
	t.Helper()
	parsed, err := policyfile.Parse("policies", []byte(policies))
	if err != nil {
		t.Fatal(err)
	}
	o := (&Options{StoreTimeout: 10 * time.Millisecond}).withDefaults()
	s := &backend{store: away{}, local: embedded.New(nil), close: func() error { return nil }}
	l, err := o.decide(t.Context(), parsed, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // units to be taken back can't be
	return l
}
