package store

import (
	"context"
	"sync"
)

// Store is the memory that limits are counted in, shared by every instance that
// counts together. It is safe for concurrent use.
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
	// WriteAll stores events of several keys so that all are stored in the end or
	// none, should this process die meanwhile or a node not answer. Nothing but
	// appended events is in w.
	WriteAll(ctx context.Context, w []Write) error
}

// EachWriter is a Store that writes to many keys for less than it takes one by one.
type EachWriter interface {
	Store
	// WriteEach stores each of w as Write does, whatever becomes of the others. It calls
	// wrote with the index and the error of each, from several goroutines at the same time,
	// and returns when it has for all of them.
	WriteEach(ctx context.Context, w []Write, wrote func(i int, err error))
}

// WriteEach has store, which may be an EachWriter, store each of w; see there.
func WriteEach(ctx context.Context, store Store, w []Write, wrote func(i int, err error)) {
	if each, ok := store.(EachWriter); ok {
		each.WriteEach(ctx, w, wrote)
		return
	}
	var all sync.WaitGroup
	for i := range w {
		all.Go(func() { wrote(i, store.Write(ctx, &w[i])) })
	}
	all.Wait()
}

// WriteReader is a Store that writes to a key and then reads it for less than it takes in two
// calls.
type WriteReader interface {
	Store
	// WriteThenRead stores w as Write does and, once that has returned nil, reads what q asks
	// for of the same key as Read does. wrote reports whether it came to that: err is Read's
	// then, and Write's else.
	WriteThenRead(ctx context.Context, w *Write, q *Query) (state State, wrote bool, err error)
}

// WriteThenRead has store, which may be a WriteReader, store w and then read what q asks for;
// see there.
func WriteThenRead(ctx context.Context, store Store, w *Write, q *Query) (state State, wrote bool, err error) {
	if both, ok := store.(WriteReader); ok {
		return both.WriteThenRead(ctx, w, q)
	}
	if err := store.Write(ctx, w); err != nil {
		return State{}, false, err
	}
	state, err = store.Read(ctx, q)
	return state, true, err
}

// Exclusive is a Store that can hold keys still while a decision is made over
// them. The engine prefers it: nobody is ever denied for units that are about to be
// taken back. One engine alone changes what is kept of its keys, and goes by that.
type Exclusive interface {
	Store
	// Update reads what q asks for, calls decide with it, and stores what decide put
	// into w, with nobody reading or writing the key in between. decide must not block
	// and keeps neither s nor w; the store keeps no memory that w names.
	Update(ctx context.Context, q *Query, decide func(s *State, w *Write)) error
	// UpdateAll is Update for several keys, in their order, of which none is in q twice:
	// all that decide put into w is stored, or nothing.
	UpdateAll(ctx context.Context, q []Query, decide func(s []State, w []Write)) error
}
