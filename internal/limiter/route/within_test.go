package route

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithinEndsInTime holds that a context ends after the timeout, or sooner if its parent does.
func TestWithinEndsInTime(t *testing.T) {
	for name, c := range map[string]struct{ parent, want time.Duration }{
		"the parent has no end":     {0, time.Second},
		"the parent ends later":     {time.Minute, time.Second},
		"the parent ends sooner":    {time.Millisecond, time.Millisecond},
		"both end at the same time": {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, began := t.Context(), time.Now()
				if c.parent > 0 {
					var cancel context.CancelFunc
					parent, cancel = context.WithTimeout(parent, c.parent)
					defer cancel()
				}
				ctx, cancel := within(parent, time.Second)
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); took != c.want {
					t.Errorf("it ends after %v, want %v", took, c.want)
				}
			})
		})
	}
}
