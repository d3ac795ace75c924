// Program take makes single takes of a plain log, and writes for each which code that one ran: into folders named by
// the case, below the one that its argument names. It is built with -cover -covermode=atomic.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func main() {
	shared := struct{ store.Store }{embedded.New(nil)} // it can't hold keys still
	for name, e := range map[string]*limiter.Engine{
		"embedded": limiter.New(embedded.New(nil), nil),
		"owner":    limiter.New(shared, &limiter.Options{Owners: sole{}}),
	} {
		if err := takes(e, filepath.Join(os.Args[1], name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// takes has e make takes until one is denied, and writes what the last one that is allowed ran, and what a later one
// that is denied ran.
func takes(e *limiter.Engine, folder string) error {
	const limit = 12
	log := policy.Policy{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: limit, Window: time.Hour}}}
	if err := e.SetPolicies([]policy.Policy{log}); err != nil {
		return err
	}
	for n := range limit + 2 {
		time.Sleep(10 * time.Millisecond) // what the one before left to do is done, and the clock is read anew
		if err := coverage.ClearCounters(); err != nil {
			return err
		}
		d, err := e.Take(context.Background(), limiter.Demand{Policy: "log", Identifier: "somebody"})
		if err != nil || d.Allowed != (n < limit) {
			return fmt.Errorf("take %d: allowed %v, %w", n, d.Allowed, err)
		}
		switch n {
		case limit - 1:
			err = write(filepath.Join(folder, "allowed"))
		case limit + 1:
			err = write(filepath.Join(folder, "denied"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := coverage.WriteCountersDir(folder); err != nil {
		return err
	}
	return coverage.WriteMetaDir(folder)
}

// sole owns all keys, and nobody ever takes that from it.
type sole struct{}

func (s sole) Place(context.Context, store.Key) (demand.Place, error) {
	return demand.Place{Term: s}, nil
}

func (s sole) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) { return s, nil }

func (sole) Owned() bool                         { return true }
func (sole) Began() time.Time                    { return time.Time{} }
func (sole) Verify(context.Context) error        { return nil }
func (sole) Verified() time.Time                 { return time.Now() }
func (sole) Leave()                              {}
func (sole) IsNew(store.Key, time.Duration) bool { return false }
func (sole) Note(store.Key, time.Duration) error { return nil }
