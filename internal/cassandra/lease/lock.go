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

// Bounds of attempts to take a Lock.
const (
	lockRetry = 100 * time.Millisecond // between attempts
	lockTries = 10                     // failures before it gives up
)

// Lock is a lease that this process holds until it releases it. If the process dies, the lease
// ends by itself, a time to live after it was taken or renewed. Get one by Wait.
type Lock struct {
	session      *gocql.Session
	name, holder string
	ttl, timeout time.Duration
	asked        time.Time // when the last successful attempt began
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
			l.Release(ctx) // it may hold the lease
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

// take takes or renews the lease. A compare-and-set that contends with others may fail although its lease was stored,
// so take tries again.
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

// Renew renews the lease for another time to live. It returns an error if another process may have held the lease
// meanwhile.
func (l *Lock) Renew(ctx context.Context) error {
	before := l.asked
	held, err := l.take(ctx)
	if err == nil && time.Since(before) >= l.ttl {
		held = false // others may have held it meanwhile
	}
	if err == nil && !held {
		err = errors.New("another instance has it, or had")
	}
	if err != nil {
		return fmt.Errorf("keeping the lock %q: %w", l.name, err)
	}
	return nil
}

// Release lets others take the lease at once.
func (l *Lock) Release(ctx context.Context) {
	Release(ctx, l.session, l.name, l.holder, gocql.Serial)
}
