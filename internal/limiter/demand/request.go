package demand

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Request is one caller's wish while it is decided together with others.
type Request struct {
	Op       count.Op
	Cost     int64
	Hold     time.Duration // for how long the units are held, unless they are settled; 0: they stay
	Alone    bool          // travels with no other, as it holds other keys as well
	ID       store.EventID // of its event, dated; zero: one is made
	Decision count.Decision
	Without  count.Decision // what it would be if nothing were counted; filled in if alone
	Err      error
	Denied   bool        // answered by a denial, which stands if another attempt fails
	Under    *Plan       // by which it is decided
	Right    owner.Right // by which it is decided; nil: nobody owns keys

	Prepare store.EventID   // of a take, under which it is prepared; of an abort, what is aborted; zero: it stays
	Fewer   <-chan struct{} // closed when it can be asked again, if it is in doubt

	Ctx   context.Context // its caller's; nil unless what is done together is told
	Until time.Time       // when its caller gives up; zero: never
	Turn  chan []*Request // receives the batch to lead, or is closed when answered
}

// EndsAfter returns when a hold that begins at now ends; 0 for none.
func EndsAfter(now store.Instant, hold time.Duration) store.Instant {
	if hold == 0 {
		return 0
	}
	return now.Add(hold)
}

// Prepares reports whether r is a take that is to be committed or aborted.
func (r *Request) Prepares() bool { return r.Prepare != (store.EventID{}) && r.Op != owner.OpAbort }
