package limiter_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// bubbles counts those that run, and keeps how many processors there were before.
var bubbles struct {
	sync.Mutex
	running    int
	processors int
}

// inBubble runs test in a synctest bubble. The race detector crashes when two goroutines
// of a bubble poll timers at the same moment: all of a bubble's share one context of the
// detector (golang/go#78156). So under it, no two goroutines run at the same moment, which
// it does not need: it compares what was ordered before what.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if race.Enabled {
		oneProcessor(1)
		defer oneProcessor(-1)
	}
	synctest.Test(t, test)
}

// oneProcessor counts a bubble that begins or ends. While there are any, goroutines have
// one processor.
func oneProcessor(change int) {
	bubbles.Lock()
	defer bubbles.Unlock()
	if bubbles.running == 0 {
		bubbles.processors = runtime.GOMAXPROCS(1)
	}
	bubbles.running += change
	if bubbles.running == 0 {
		runtime.GOMAXPROCS(bubbles.processors)
	}
}

// bubble runs test as a test of its own, in a bubble.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}
