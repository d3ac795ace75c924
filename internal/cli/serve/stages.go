package serve

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// stage works until its context ends, and returns when its work is done.
type stage func(context.Context) error

// inOrder runs all stages at the same time and stops them one after the other: the first when ctx ends or any stage
// fails, each later one when the one before it has returned. It returns the first error when all have returned.
func inOrder(ctx context.Context, stages ...stage) error {
	g, until := errgroup.WithContext(ctx)
	for _, s := range stages {
		begin := until
		next, done := context.WithCancel(context.WithoutCancel(ctx))
		g.Go(func() error {
			defer done()
			return s(begin)
		})
		until = next
	}
	return g.Wait()
}

// untilDone is a stage that does nothing.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// together returns a stage that runs all stages at once.
func together(stages ...stage) stage {
	return func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, s := range stages {
			g.Go(func() error { return s(ctx) })
		}
		return g.Wait()
	}
}
