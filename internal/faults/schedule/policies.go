// Package schedule draws the calls and the faults of a run of the faults program, with their times, from a seed. The
// same seed gives the same schedule.
//
// It does not carry them out.
package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Streams of random numbers from one seed. The streams of calls come after these.
const (
	streamNodes = iota
	streamProcesses
	streamCalls
)

func random(seed uint64, stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }

// Limits with a lot of room: one burst reaches largeLimit, several reach wideLimit.
const (
	largeLimit = 150
	wideLimit  = 320
)

// Policies returns the policies of a run: every algorithm, some in rows, some with a lot of room, some that depend
// on confirmations or releases, two logs that share calls, and some whose windows are longer than the run. The windows of
// fixed-window policies last so many days that no edge is near.
func Policies(now time.Time) []history.Policy {
	day := 24 * time.Hour
	kept := history.Policy{Kept: true, Limit: 1000, Window: day}
	fixed := kept
	for ; now.UnixMilli()%fixed.Window.Milliseconds() > (fixed.Window - 4*time.Hour).Milliseconds(); fixed.Window += day {
	}
	bucket := kept
	bucket.Limit, bucket.Burst = 1, 1000 // drains a unit a day, and a fraction of a unit counts as a unit
	return []history.Policy{
		{Name: "log", Algorithm: "sliding-log", Limit: 4, Window: 2 * time.Second},
		{Name: "long-log", Algorithm: "sliding-log", Limit: 8, Window: 15 * time.Second},
		{Name: "fixed", Algorithm: "fixed-window", Limit: 5, Window: 3 * time.Second},
		{Name: "window", Algorithm: "sliding-window", Limit: 5, Window: 4 * time.Second, Buckets: 4},
		{Name: "tail", Algorithm: "sliding-tail", Limit: 5, Window: 3 * time.Second},
		{Name: "rows-fixed", Algorithm: "fixed-window", Rows: true, Limit: 5, Window: 3 * time.Second},
		{Name: "rows-tail", Algorithm: "sliding-tail", Rows: true, Limit: 5, Window: 3 * time.Second},
		{Name: "large", Algorithm: "fixed-window", Limit: largeLimit, Window: 6 * time.Second},
		{Name: "rows-large", Algorithm: "fixed-window", Rows: true, Limit: largeLimit, Window: 6 * time.Second},
		{Name: "wide-fixed", Algorithm: "fixed-window", Rows: true, Limit: wideLimit, Window: 16 * time.Second},
		{Name: "wide-tail", Algorithm: "sliding-tail", Rows: true, Limit: wideLimit, Window: 16 * time.Second},
		{Name: "leaky", Algorithm: "leaky-bucket", Limit: 3, Window: 2 * time.Second},
		{Name: "token", Algorithm: "token-bucket", Limit: 3, Window: 3 * time.Second, Burst: 5},
		{Name: "conversion", Algorithm: "conversion", Limit: 2, Window: 4 * time.Second, Buckets: 10, MinConversion: 50, Probe: time.Second},
		{Name: "unconfirmed", Algorithm: "sliding-log", Limit: 3, Window: 4 * time.Second, Until: "confirmed"},
		{Name: "concurrent", Algorithm: "concurrent", Limit: 3, Window: 4 * time.Second},
		{Name: "pair", Algorithm: "sliding-log", Limit: 10, Window: day, With: "twin"},
		{Name: "twin", Algorithm: "sliding-log", Limit: 7, Window: day, With: "pair"},
		as(kept, "kept-log", "sliding-log"),
		as(fixed, "kept-fixed", "fixed-window"),
		inRows(as(fixed, "kept-rows", "fixed-window")),
		as(bucket, "kept-bucket", "token-bucket"),
		as(kept, "kept-concurrent", "concurrent"),
		untilConfirmed(as(kept, "kept-unconfirmed", "sliding-log")),
		untilConfirmed(as(fixed, "kept-unconfirmed-fixed", "fixed-window")),
		{Name: "kept-conversion", Algorithm: "conversion", Kept: true, Limit: 3, Window: day, Buckets: 10, MinConversion: 40, Probe: time.Second},
	}
}

func as(p history.Policy, name, algorithm string) history.Policy {
	p.Name, p.Algorithm = name, algorithm
	return p
}

func inRows(p history.Policy) history.Policy {
	p.Rows = true
	return p
}

func untilConfirmed(p history.Policy) history.Policy {
	p.Until = "confirmed"
	return p
}

// File returns policies as ratelimitd reads them.
func File(policies []history.Policy) []byte {
	var b strings.Builder
	b.WriteString("policies:\n")
	for _, p := range policies {
		counting := "counters"
		if p.Rows {
			counting = "rows"
		}
		number, window := "limit", "window"
		switch {
		case p.Converts():
			number = "after"
		case p.Releases():
			window = "hold"
		}
		fmt.Fprintf(&b, "  - name: %s\n    counting: %s\n    limits: [{algorithm: %s, %s: %d, %s: %v",
			p.Name, counting, p.Algorithm, number, p.Limit, window, p.Window)
		if p.Converts() {
			fmt.Fprintf(&b, ", min_conversion: %d%%, probe: 1/%v", p.MinConversion, p.Probe)
		} else if p.Buckets > 0 {
			fmt.Fprintf(&b, ", buckets: %d", p.Buckets)
		}
		if p.Until != "" {
			fmt.Fprintf(&b, ", until: %s", p.Until)
		}
		if p.Burst > 0 {
			fmt.Fprintf(&b, ", burst: %d", p.Burst)
		}
		b.WriteString("}]\n")
	}
	return []byte(b.String())
}
