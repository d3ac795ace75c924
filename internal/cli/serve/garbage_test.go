package serve

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
)

// TestGOGCIsHeeded leaves the collector alone where GOGC is given.
func TestGOGCIsHeeded(t *testing.T) {
	const given = 123
	defer debug.SetGCPercent(debug.SetGCPercent(given))
	runtime.GC()
	for gogc, spared := range map[string]bool{"": true, "off": false, "100": false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = sparing(gogc)(ctx) }() // it returns nil
			synctest.Wait()
			if got := debug.SetGCPercent(given); (got != given) != spared {
				t.Errorf("GOGC=%s: %d %%", gogc, got)
			}
		})
	}
}
