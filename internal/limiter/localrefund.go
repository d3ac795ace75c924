package limiter

import (
	"context"
	"sync"
	"time"
)

// lateRefunds are units of other instances that are given back later: these may not
// have written yet what they counted, and whoever read the one without the other would
// count too little.
type lateRefunds struct {
	mu    sync.Mutex
	queue []lateRefund
}

type lateRefund struct {
	target target
	entry  entry
	sums   bool
	ripe   time.Time
}

// maxLateRefunds bounds what waits to be given back, of 300 bytes each. Past it the units
// stay charged until their window ends.
const maxLateRefunds = 1 << 14

// giveBack takes out of memory what n counted for t, and out of the shared store with the
// next sync. What another instance counted is given back as soon as it surely wrote it.
func (b *behind) giveBack(ctx context.Context, t *target, n *entry, sums bool) error {
	own := n.id.node() == b.counted.ids.nodeBits
	if !own && b.opts.now().Sub(n.at) <= b.refundWait() {
		b.later.push(lateRefund{target: *t, entry: *n, sums: sums, ripe: time.Now().Add(b.refundWait())})
		return nil
	}
	return b.giveBackNow(ctx, t, n, sums)
}

// refundWait returns how old units are that the instance that counted them surely wrote,
// while the store answers.
func (b *behind) refundWait() time.Duration {
	return 2*(b.opts.StoreTimeout+b.opts.ClockTolerance) + b.opts.SyncInterval
}

func (b *behind) giveBackNow(ctx context.Context, t *target, n *entry, sums bool) error {
	now := b.opts.now()
	if err := b.memory.giveBack(ctx, &target{plan: t.plan.local, key: t.key}, n, sums, now); err != nil {
		return err
	}
	if t.plan.cell {
		if sums {
			b.noteScooped(t, n)
		}
		return nil
	}
	sh, waits := b.wait(t)
	defer sh.mu.Unlock()
	if len(t.plan.logs) > 0 {
		waits.remove = append(waits.remove, n.id)
	}
	if sums {
		waits.count(t.plan.appendCounts(nil, n.epoch, n.at, -n.cost))
	}
	return nil
}

func (l *lateRefunds) push(r lateRefund) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) < maxLateRefunds {
		l.queue = append(l.queue, r)
	}
}

// refundLate gives back what has waited long enough.
func (b *behind) refundLate(ctx context.Context) {
	now := time.Now()
	l := &b.later
	l.mu.Lock()
	ripe := 0 // all wait for as long, so the first ones are
	for ripe < len(l.queue) && !l.queue[ripe].ripe.After(now) {
		ripe++
	}
	due := l.queue[:ripe]
	l.queue = append([]lateRefund(nil), l.queue[ripe:]...)
	l.mu.Unlock()
	for i := range due {
		_ = b.giveBackNow(ctx, &due[i].target, &due[i].entry, due[i].sums)
	}
}
