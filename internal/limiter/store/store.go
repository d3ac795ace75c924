package store

import (
	"context"
	"sync"
)

// Store is the memory in which limits are counted, shared by all instances that count together. It is safe for concurrent
// use.
//
// If its levels meet, a Read that starts after a Write of the same key has returned nil sees that Write. Errors wrap
// ErrUnavailable or ErrOverloaded. After an error, a Write may be stored whole, in part or not at all, unless the error wraps
// ErrNotStored.
type Store interface {
	// Read returns the state that q asks for. The caller may change it.
	Read(ctx context.Context, q *Query) (State, error)
	// Write stores w.
	Write(ctx context.Context, w *Write) error
	// WriteEach stores each of w as Write does, independently of the others. It calls wrote with the index and the
	// error of each, from several goroutines at the same time, and returns after the last call.
	WriteEach(ctx context.Context, w []Write, wrote func(i int, err error))
	// WriteThenRead stores w as Write does and, once that has succeeded, reads q, which has the same key, as Read does. wrote
	// reports whether the write succeeded. If it did, err is the error of the read, else that of the write.
	WriteThenRead(ctx context.Context, w *Write, q *Query) (state State, wrote bool, err error)
}

// OneByOne implements WriteEach of s by Write, for a store that writes to many keys no faster than to each on its own.
func OneByOne(ctx context.Context, s Store, w []Write, wrote func(i int, err error)) {
	var all sync.WaitGroup
	for i := range w {
		all.Go(func() { wrote(i, s.Write(ctx, &w[i])) })
	}
	all.Wait()
}

// InTwoSteps implements WriteThenRead of s by Write and Read, for a store that needs two requests for it.
func InTwoSteps(ctx context.Context, s Store, w *Write, q *Query) (state State, wrote bool, err error) {
	if err := s.Write(ctx, w); err != nil {
		return State{}, false, err
	}
	state, err = s.Read(ctx, q)
	return state, true, err
}

// Exclusive is a Store that can lock keys during a decision. The engine prefers it, because no call is denied because of
// units that are about to be removed again. Only one engine may use such a store, and relies on that.
type Exclusive interface {
	Store
	// Update reads the state that q asks for, calls decide with it, and stores the changes that decide puts into w, with no
	// other read or write of the key in between. decide must not block and must not keep s or w. The store keeps no memory
	// to which w refers.
	Update(ctx context.Context, q *Query, decide func(s *State, w *Write)) error
	// UpdateAll is Update for several keys, each of which is in q once. s and w are in the order of q. Either all changes in w
	// are stored, or none.
	UpdateAll(ctx context.Context, q []Query, decide func(s []State, w []Write)) error
}
