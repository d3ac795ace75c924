package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/gocql/gocql"
)

// Bounds of the tries to take a Lock.
const (
	lockRetry = 100 * time.Millisecond // between tries
	lockTries = 10                     // that fail, before it is given up
)

// Lock is a lease that this process holds until it releases it. If the process dies, the lease
// ends by itself, a time to live after it was taken or renewed. Get one by Wait.
type Lock struct {
	session      *gocql.Session
	name, holder string
	ttl, timeout time.Duration
	asked        time.Time // when it was last asked for and had, at the latest
}

// Wait waits until this process holds the lease called name. It calls waiting once if another
// process holds it. timeout is for each attempt.
func Wait(ctx context.Context, session *gocql.Session, name string, ttl, timeout time.Duration, waiting func()) (*Lock, error) {
	l := &Lock{session: session, name: name, holder: rand.Text(), ttl: ttl, timeout: timeout}
	tick := time.NewTicker(lockRetry)
	defer tick.Stop()
	for waits := false; ; waits = true {
		held, err := l.take(ctx)
		switch {
		case held:
			return l, nil
		case err != nil:
			l.Release(ctx) // it may have it
			return nil, fmt.Errorf("taking the lock %q: %w", name, err)
		case !waits:
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %q, which another instance holds: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

// take takes or renews the lease. Instances that compare and set at the same time may take
// each other's turn, which is an error to one that has the lease all the same: it is tried
// again.
func (l *Lock) take(ctx context.Context) (held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	for range lockTries {
		asked := time.Now()
		held, err = Take(ctx, l.session, l.name, l.holder, l.ttl, gocql.Serial)
		if held {
			l.asked = asked
		}
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(lockRetry/2 + mathrand.N(lockRetry)):
		}
	}
	return held, err
}

// Renew has the lease last for another time to live. Its error says so if the lease may have
// been somebody else's meanwhile.
func (l *Lock) Renew(ctx context.Context) error {
	before := l.asked
	held, err := l.take(ctx)
	if err == nil && time.Since(before) >= l.ttl {
		held = false // others may have had it meanwhile
	}
	if err == nil && !held {
		err = errors.New("another instance has it, or had")
	}
	if err != nil {
		return fmt.Errorf("keeping the lock %q: %w", l.name, err)
	}
	return nil
}

// Release lets others have the lease at once.
func (l *Lock) Release(ctx context.Context) {
	Release(ctx, l.session, l.name, l.holder, gocql.Serial)
}
