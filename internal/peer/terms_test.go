package peer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// lasting is an owner's term that does not end.
type lasting struct{ _ byte }

func (l *lasting) Owned() bool                  { return true }
func (l *lasting) Began() time.Time             { return time.Time{} }
func (l *lasting) Verify(context.Context) error { return nil }
func (l *lasting) Verified() time.Time          { return time.Time{} }
func (l *lasting) Leave()                       {}

func (l *lasting) IsNew(store.Key, time.Duration) bool { return false }
func (l *lasting) Note(store.Key, time.Duration) error { return nil }

// fixedOwners says of all keys that this instance owns them.
type fixedOwners struct{ term *lasting }

func (o *fixedOwners) Place(context.Context, store.Key) (demand.Place, error) {
	return demand.Place{Term: o.term}, nil
}

func (o *fixedOwners) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) {
	return o.term, nil
}

// TestMemoryBelongsToOneTerm holds that an owner which gets a key back reads what others counted.
func TestMemoryBelongsToOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := embedded.New(nil)
		engine := func(o demand.Owners) *limiter.Engine {
			e := limiter.New(struct{ store.Store }{counts}, &limiter.Options{Owners: o})
			pol := policy.Policy{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 2, Window: time.Hour}}}
			if err := e.SetPolicies([]policy.Policy{pol}); err != nil {
				t.Fatal(err)
			}
			return e
		}
		owns := &fixedOwners{term: &lasting{}}
		former, between := engine(owns), engine(&fixedOwners{term: &lasting{}})
		admits := func(what string, e *limiter.Engine, want bool) {
			t.Helper()
			d, err := e.Take(t.Context(), limiter.Demand{Policy: "log", Identifier: "id"})
			if got := err == nil && d.Allowed; got != want {
				t.Errorf("%s is admitted: %t, want %t", what, got, want)
			}
		}
		admits("the owner's first", former, true)
		admits("that of the key's owner in between", between, true)
		owns.term = &lasting{}
		admits("a third", former, false)
	})
}
