package store

import (
	"context"
	"sync"
)

// Store is the memory that limits are counted in, shared by all instances that count together. It is safe for
// concurrent use.
//
// A store whose levels meet promises: a Read that starts after a Write of the
// same key returned nil sees that Write. Errors wrap ErrUnavailable or
// ErrOverloaded; after one, a Write may be stored whole, in part or not at all,
// unless the error wraps ErrNotStored.
type Store interface {
	// Read returns what q asks for. The state is the caller's.
	Read(ctx context.Context, q *Query) (State, error)
	// Write stores w.
	Write(ctx context.Context, w *Write) error
	// WriteEach stores each of w as Write does, independently of the others. It calls wrote with the index and the
	// error of each, from several goroutines at the same time, and returns after the last call.
	WriteEach(ctx context.Context, w []Write, wrote func(i int, err error))
	// WriteThenRead stores w as Write does and, after the write has succeeded, reads q, which has the same key, as Read
	// does. wrote reports whether the write succeeded: err is then Read's, and else Write's.
	WriteThenRead(ctx context.Context, w *Write, q *Query) (state State, wrote bool, err error)
}

// OneByOne does what WriteEach of s does by Write, for a store that writes no faster to many keys.
func OneByOne(ctx context.Context, s Store, w []Write, wrote func(i int, err error)) {
	var all sync.WaitGroup
	for i := range w {
		all.Go(func() { wrote(i, s.Write(ctx, &w[i])) })
	}
	all.Wait()
}

// InTwoSteps does what WriteThenRead of s does by Write and Read, for a store that needs two requests for it.
func InTwoSteps(ctx context.Context, s Store, w *Write, q *Query) (state State, wrote bool, err error) {
	if err := s.Write(ctx, w); err != nil {
		return State{}, false, err
	}
	state, err = s.Read(ctx, q)
	return state, true, err
}

// Exclusive is a Store that can lock keys during a decision. The engine prefers it: no call is ever denied because of
// units that are about to be removed again. A single engine changes the state of its keys, and relies on that.
type Exclusive interface {
	Store
	// Update reads what q asks for, calls decide with it, and stores what decide put into w, with no other read or
	// write of the key in between. decide must not block and must not keep s or w; the store keeps no memory that w
	// refers to.
	Update(ctx context.Context, q *Query, decide func(s *State, w *Write)) error
	// UpdateAll is Update for several keys, in their order, each of which is in q once: all that decide put into w is
	// stored, or nothing.
	UpdateAll(ctx context.Context, q []Query, decide func(s []State, w []Write)) error
}
