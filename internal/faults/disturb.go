//go:build unix

package faults

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
)

// A slow node or process alternately runs and is frozen for a while.
const (
	slowRuns   = 120 * time.Millisecond
	slowStands = 180 * time.Millisecond
)

// disturbNodes carries out the faults of nodes, one after the other, and records the times
// between them, in which the cluster was whole.
func (r *run) disturbNodes(ctx context.Context, faults []schedule.Fault) error {
	whole := r.now()
	for _, f := range faults {
		r.waitUntil(ctx, f.At)
		if ctx.Err() != nil {
			return nil
		}
		began := r.now()
		r.keepWhole(whole, began)
		r.Logf("%7.1f s %s: %d, for %v", began.Seconds(), f.Kind, f.Target, f.Lasts.Round(time.Millisecond))
		if err := r.disturbNode(ctx, &f); err != nil {
			return err
		}
		if err := r.cluster.WaitUp(ctx); err != nil {
			return err
		}
		whole = r.now()
		r.keepFault(&f, began)
	}
	r.waitUntil(ctx, r.Lasts)
	r.keepWhole(whole, r.now())
	return nil
}

func (r *run) disturbNode(ctx context.Context, f *schedule.Fault) error {
	node := r.cluster.Nodes()[f.Target]
	switch f.Kind {
	case history.NodeKill:
		if err := node.Kill(); err != nil {
			return err
		}
		wait(ctx, f.Lasts)
		return node.Start(ctx)
	case history.NodeSlow:
		return slow(ctx, f.Lasts, node.Pause, node.Resume)
	case history.MajorityPause:
		other := r.cluster.Nodes()[(f.Target+1)%nodes]
		return freeze(ctx, f.Lasts, both(node.Pause, other.Pause), both(node.Resume, other.Resume))
	}
	return freeze(ctx, f.Lasts, node.Pause, node.Resume)
}

// disturbProcesses carries out the faults of processes, one after the other.
func (r *run) disturbProcesses(ctx context.Context, faults []schedule.Fault) error {
	for _, f := range faults {
		r.waitUntil(ctx, f.At)
		if ctx.Err() != nil {
			return nil
		}
		began := r.now()
		r.Logf("%7.1f s %s: %d, for %v", began.Seconds(), f.Kind, f.Target, f.Lasts.Round(time.Millisecond))
		if err := r.disturbProcess(ctx, &f); err != nil {
			return err
		}
		r.keepFault(&f, began)
	}
	return nil
}

func (r *run) disturbProcess(ctx context.Context, f *schedule.Fault) error {
	p := r.processes[f.Target]
	switch f.Kind {
	case history.ProcessKill, history.ProcessStop:
		end := p.kill
		if f.Kind == history.ProcessStop {
			end = p.terminate
		}
		if err := end(); err != nil {
			return err
		}
		wait(ctx, f.Lasts)
		return p.start(ctx)
	case history.ProcessSlow:
		return slow(ctx, f.Lasts, p.pause, p.resume)
	case history.PeersCut:
		return freeze(ctx, f.Lasts, p.wire.cut, p.wire.mend)
	case history.PeersHeld:
		return freeze(ctx, f.Lasts, p.wire.hold, p.wire.release)
	}
	return freeze(ctx, f.Lasts, p.pause, p.resume)
}

func freeze(ctx context.Context, lasts time.Duration, pause, resume func() error) error {
	err := pause()
	wait(ctx, lasts)
	return errors.Join(err, resume())
}

func slow(ctx context.Context, lasts time.Duration, pause, resume func() error) error {
	for until := time.Now().Add(lasts); time.Now().Before(until) && ctx.Err() == nil; {
		if err := freeze(ctx, slowStands, pause, resume); err != nil {
			return err
		}
		wait(ctx, slowRuns)
	}
	return nil
}

func both(one, other func() error) func() error {
	return func() error { return errors.Join(one(), other()) }
}

func (r *run) keepFault(f *schedule.Fault, began time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Faults = append(r.history.Faults, history.Fault{
		Kind: f.Kind, Target: f.Target, Span: history.Span{From: began, Until: r.now()},
	})
}

func (r *run) keepWhole(from, until time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Whole = append(r.history.Whole, history.Span{From: from, Until: until})
}
