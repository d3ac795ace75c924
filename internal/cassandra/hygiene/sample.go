package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"runtime/metrics"
	"time"
)

const (
	sampleEvery = 10 * time.Second
	countEvery  = 3  // samples: rows are counted by reading all of them
	countSlices = 16 // of the ring, so that no request walks over more than a node allows
)

// tables are those of which the levels are watched.
var tables = []string{"events_hour", "counters", "cells", "changes"}

// sampler looks at a node under load every few seconds.
type sampler struct {
	node *node
	load *load
	to   *series
	log  io.Writer
	n    int // of the sample
}

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.sample(ctx)
		}
	}
}

func (s *sampler) sample(ctx context.Context) {
	s.n++
	s.disk()
	s.reads(ctx)
	s.callers()
	if s.n%countEvery == 0 {
		s.rows(ctx, "events_hour", "key", "cost")
		s.rows(ctx, "cells", "key", "cost")
		s.rows(ctx, "changes", "bucket", "until")
		s.counters(ctx)
	}
	s.report()
}

func (s *sampler) disk() {
	for _, table := range tables {
		size, count := s.node.onDisk("data/" + keyspace + "/" + table + "-*")
		s.to.add("MB "+table, megabytes(size))
		s.to.add("SSTables "+table, float64(count))
	}
	paxos, _ := s.node.onDisk("data/system/*paxos*")
	s.to.add("MB system.paxos", megabytes(paxos))
	all, _ := s.node.onDisk("data")
	s.to.add("MB all data", megabytes(all))
	log, _ := s.node.onDisk("commitlog")
	s.to.add("MB commit log", megabytes(log))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// reads asks the node what its reads of the last minutes were like. Their maximum is not
// asked for: it would be of this program's own counting.
func (s *sampler) reads(ctx context.Context) {
	for _, table := range tables {
		for _, view := range []struct{ name, from string }{
			{"tombstones a read", "tombstones_per_read"},
			{"rows a read", "rows_per_read"},
		} {
			var p50, p99 float64
			err := s.node.session.Query("SELECT p50th, p99th FROM system_views."+view.from+" WHERE keyspace_name = ? AND table_name = ?",
				keyspace, table).WithContext(ctx).Scan(&p50, &p99)
			if err != nil {
				s.complain("asking for "+view.name, err)
				continue
			}
			s.to.add(view.name+" p50 "+table, p50)
			s.to.add(view.name+" p99 "+table, p99)
		}
	}
}

// callers notes what callers see, and this process.
func (s *sampler) callers() {
	for name, took := range s.load.latencies.drain() {
		s.to.add("ms p50 "+name, milliseconds(percentile(took, 50)))
		s.to.add("ms p99 "+name, milliseconds(percentile(took, 99)))
	}
	s.to.add("calls", float64(s.load.calls.Load()))
	s.to.add("failed calls", float64(s.load.failed.Load()))
	s.to.add("identifiers", float64(s.load.fresh.Load()))
	progress, deleted := s.load.instances.sweeps()
	s.to.add("sweep", progress)
	s.to.add("keys swept", float64(deleted))
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(heap)
	s.to.add("MB heap", megabytes(int64(heap[0].Value.Uint64())))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// long is a time to live that only claims about reservations have here: they are kept
// for two hours, which nothing shortens.
const long = 30 * time.Minute

// rows counts a table's, by reading it in slices.
func (s *sampler) rows(ctx context.Context, table, key, lives string) {
	var total, reservations float64
	for i := range countSlices {
		first, last := slice(i)
		query := fmt.Sprintf("SELECT TTL(%s) FROM %s.%s WHERE token(%s) >= ? AND token(%[4]s) <= ?", lives, keyspace, table, key)
		rows := s.node.session.Query(query, first, last).WithContext(ctx).Iter()
		for ttl := 0; rows.Scan(&ttl); {
			total++
			if ttl > int(long/time.Second) {
				reservations++
			}
		}
		if err := rows.Close(); err != nil {
			s.complain("counting the rows of "+table, err)
			return
		}
	}
	s.to.add("rows "+table, total-reservations)
	s.to.add("rows for two hours "+table, reservations)
}

// counters counts all, and looks for the one that expired the longest ago.
func (s *sampler) counters(ctx context.Context) {
	now := time.Now()
	oldest, total := now, 0.0
	for i := range countSlices {
		first, last := slice(i)
		const all = "SELECT expires_at FROM " + keyspace + ".counters WHERE token(key) >= ? AND token(key) <= ?"
		rows := s.node.session.Query(all, first, last).WithContext(ctx).Iter()
		for expires := (time.Time{}); rows.Scan(&expires); total++ {
			if expires.Before(oldest) {
				oldest = expires
			}
		}
		if err := rows.Close(); err != nil {
			s.complain("counting the counters", err)
			return
		}
	}
	s.to.add("rows counters", total)
	s.to.add("s since the oldest counter expired", now.Sub(oldest).Seconds())
}

// slice returns the i-th part of the ring.
func slice(i int) (first, last int64) {
	const width = math.MaxUint64/countSlices + 1
	first = int64(math.MinInt64) + int64(i)*width
	return first, first + (width - 1)
}

func (s *sampler) complain(doing string, err error) { fmt.Fprintf(s.log, "%s: %v\n", doing, err) }

// report says how it goes.
func (s *sampler) report() {
	last := func(name string) float64 { v, _ := s.to.last(name); return v }
	fmt.Fprintf(s.log, "%5.0f s  %8.0f calls, %6.0f failed, %8.0f identifiers  "+
		"rows %6.0f %6.0f %6.0f %6.0f  MB %5.1f %5.1f %5.1f %5.1f  lag %3.0f s\n",
		time.Since(s.to.start).Seconds(), last("calls"), last("failed calls"), last("identifiers"),
		last("rows events_hour"), last("rows counters"), last("rows cells"), last("rows changes"),
		last("MB events_hour"), last("MB counters"), last("MB cells"), last("MB changes"), last("s since the oldest counter expired"))
	if text := s.load.lastError.Swap(nil); text != nil {
		fmt.Fprintln(s.log, "  a call failed:", *text)
	}
}
