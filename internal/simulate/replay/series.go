package replay

import (
	"slices"
	"time"

	"github.com/axiomhq/hyperloglog"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Series has the outcomes of events, over time.
type Series struct {
	Start store.Instant // of the first bin
	Width time.Duration // of each bin
	Bins  []*Bin        // in the order of time; nil: without events
}

// Bin has the outcomes of the events within a span of time, by the names of policies.
type Bin struct {
	Policies map[string]*BinCounts
}

// BinCounts are the counts of one policy in a bin.
type BinCounts struct {
	Requests int64
	Denied   []int64 // as PolicyResult.DeniedBy
	Against  int64   // denied under the policies to compare with
	callers  *hyperloglog.Sketch
}

// Callers returns an estimate of the number of callers, exact to about 3 percent.
func (b *BinCounts) Callers() int64 { return int64(b.callers.Estimate()) }

// maxBins is the maximum of bins. A plot has room for no more.
const maxBins = 240

// widths are the possible widths of bins, each a multiple of the one before.
var widths = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 8 * 24 * time.Hour, 32 * 24 * time.Hour,
	320 * 24 * time.Hour, // maxBins of it are two centuries
}

func newSeries() *Series { return &Series{Width: widths[0]} }

// at returns the bin of an instant, which is not before the first one of the series.
func (s *Series) at(at store.Instant) *Bin {
	if len(s.Bins) == 0 {
		s.Start = floor(at, s.Width)
	}
	for at.Sub(s.Start) >= maxBins*s.Width && s.Width < widths[len(widths)-1] {
		s.widen()
	}
	n := min(int(at.Sub(s.Start)/s.Width), maxBins-1)
	for len(s.Bins) <= n {
		s.Bins = append(s.Bins, nil)
	}
	if s.Bins[n] == nil {
		s.Bins[n] = &Bin{Policies: make(map[string]*BinCounts)}
	}
	return s.Bins[n]
}

func floor(at store.Instant, width time.Duration) store.Instant {
	return at - at%store.Instant(width.Milliseconds())
}

// widen merges the bins into wider ones.
func (s *Series) widen() {
	narrow := *s
	*s = Series{Width: widths[slices.Index(widths, s.Width)+1]}
	for i, bin := range narrow.Bins {
		if bin != nil {
			s.at(narrow.Start.Add(time.Duration(i) * narrow.Width)).add(bin)
		}
	}
}

func (b *Bin) of(policy string, limits int) *BinCounts {
	c := b.Policies[policy]
	if c == nil {
		c = &BinCounts{Denied: make([]int64, limits+unlimited), callers: newSketch()}
		b.Policies[policy] = c
	}
	return c
}

func (b *Bin) add(other *Bin) {
	for name, more := range other.Policies {
		c := b.Policies[name]
		if c == nil {
			b.Policies[name] = more
			continue
		}
		c.Requests += more.Requests
		c.Against += more.Against
		for i := range c.Denied {
			c.Denied[i] += more.Denied[i]
		}
		_ = c.callers.Merge(more.callers) // of the same precision
	}
}

// sketchPrecision is the precision of sketches of 1 KiB each, whose standard error is 3.2 percent.
const sketchPrecision = 10

func newSketch() *hyperloglog.Sketch {
	sketch, _ := hyperloglog.NewSketch(sketchPrecision, false) // a valid precision
	return sketch
}
