package once

import (
	"context"
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var errLost = errors.New("no answer")

// lost loses the answer to the first write. The second one meets what the first one may have stored, and the caller's
// time is over then. Nothing can be read.
type lost struct {
	store.Store
	writes int
	end    context.CancelFunc
}

func (l *lost) Write(context.Context, *store.Write) error {
	if l.writes++; l.writes == 1 {
		return errLost
	}
	l.end()
	return store.ErrConflict
}

func (l *lost) Read(context.Context, *store.Query) (store.State, error) {
	return store.State{}, errLost
}

// TestClaimInDoubt checks that a claim whose earlier attempt may be stored is not taken for another caller's.
func TestClaimInDoubt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &lost{end: cancel}
	c := &Claims{store: s, ids: store.NewEventIDs(), opts: demand.Settings{}.WithDefaults(), Serial: policy.LevelSerial}
	_, err := c.Swap(ctx, store.Key{}, store.EventID{}, []byte("mine"), 0)
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrConflict) || s.writes != 2 {
		t.Errorf("after %d writes: %v; want ErrUnavailable, and no ErrConflict, after 2", s.writes, err)
	}
}
