package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/measure"
	"github.com/ratelimitd/ratelimitd/bench/policy"
	"github.com/ratelimitd/ratelimitd/bench/report"
)

// bench is one measurement of all peers.
type bench struct {
	*settings
	scratch  string // folder for programs and logs
	policies policy.List
	report   report.Report
	skipped  map[*peer]bool
	settled  bool // Java has compiled Cassandra's hot code
	started  int  // subjects started so far
	log      io.Writer
	// baseline is half of report.Baseline's rate in the closed loop, in calls a second.
	baseline map[likeness]float64
}

func newBench(ctx context.Context, s *settings, log io.Writer) (*bench, error) {
	scratch, err := os.MkdirTemp("", "ratelimitd-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, scratch: scratch, log: log, skipped: make(map[*peer]bool), baseline: make(map[likeness]float64)}
	b.report = report.Report{
		Started: time.Now(), Seed: s.seed, Machine: measure.Machine(),
		Settings: fmt.Sprintf("%v of zipf, %v of others, after %v", s.zipf, s.duration, s.warmUp),
	}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// prepare builds the programs and finds out which peers can be measured.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	if b.policies, err = policy.Read(b.policyFile()); err != nil {
		return err
	}
	for _, p := range b.peers {
		if reason := p.skip(b); reason != "" {
			b.skipped[p] = true
			b.report.Skipped = append(b.report.Skipped, p.name+", as "+reason)
			fmt.Fprintf(b.log, "left out: %s, as %s\n", p.name, reason)
		} else if p.cassandra && b.cassandra == nil {
			if b.cassandra, err = cassandraPIDs(b.hosts); err != nil {
				return err
			}
		}
	}
	return nil
}

// build builds ratelimitd from the checkout, and the peers.
func (b *bench) build(ctx context.Context) error {
	for folder, target := range map[string]string{filepath.Dir(b.dir): "./cmd/ratelimitd", b.dir: "./peers/..."} {
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.scratch+"/", target)
		command.Dir, command.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", target, err, out)
		}
	}
	out, err := exec.CommandContext(ctx, "git", "-C", b.dir, "describe", "--always", "--dirty").Output()
	if b.report.Version = "ratelimitd " + strings.TrimSpace(string(out)); err != nil {
		b.report.Version = "ratelimitd of no known commit"
	}
	return ctx.Err()
}

func (b *bench) policyFile() string { return filepath.Join(b.dir, "policies.yaml") }

func (b *bench) program(name string) string { return filepath.Join(b.scratch, name) }

func (b *bench) close() error { return os.RemoveAll(b.scratch) }

// job is one measurement.
type job struct {
	peer        *peer
	instances   int
	connections int
	policy      policy.Policy
	keys        load.Keys
	rate        float64
}

// likeness identifies the baseline's measurement with which a measurement is compared.
type likeness struct {
	policy                 string
	instances, connections int
}

func (j job) likeness() likeness { return likeness{j.policy.Name, j.instances, j.connections} }

// lasts returns how long to measure.
func (b *bench) lasts(j job) time.Duration {
	switch {
	case b.smoke && j.peer.cassandra:
		return b.settling // the others' time may be over before it has answered once
	case j.keys.String() == halved:
		return b.zipf
	}
	return b.duration
}

// halved is the distribution that is also measured at half the rate, in an open loop.
const halved = "zipf"

// all makes all measurements, and writes the report after each.
func (b *bench) all(ctx context.Context) error {
	for _, j := range b.jobs() {
		if err := b.settle(ctx, j); err != nil {
			return err
		}
		closed, err := b.measure(ctx, j)
		if err != nil {
			return err
		}
		for _, j.rate = range b.openRates(j, closed.PerSecond()) {
			if _, err := b.measure(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// openRates returns the rates of the open loops that follow a closed one with this many calls a second: half of it, and half of the
// baseline's if that is less, so that latencies can also be compared under the same load.
func (b *bench) openRates(j job, closed float64) (rates []float64) {
	own := math.Floor(closed / 2)
	if j.keys.String() != halved || j.peer.batch > 0 || own == 0 {
		return nil
	}
	rates = append(rates, own)
	if j.peer.name == report.Baseline {
		b.baseline[j.likeness()] = own
	}
	if shared := b.baseline[j.likeness()]; 0 < shared && shared < own {
		rates = append(rates, shared)
	}
	return rates
}

// jobs returns the measurements in a closed loop.
func (b *bench) jobs() (jobs []job) {
	for _, p := range b.policies {
		if !b.wants(p.Name) {
			continue
		}
		for _, keys := range b.keys {
			for _, connections := range b.connections {
				jobs = append(jobs, b.jobsOf(job{policy: p, keys: keys, connections: connections})...)
			}
		}
	}
	return jobs
}

// jobsOf returns like for every peer that is measured, with each number of its instances.
func (b *bench) jobsOf(like job) (jobs []job) {
	for _, peer := range b.peers {
		if b.skipped[peer] {
			continue
		}
		for _, instances := range b.numbers(peer) {
			like.peer, like.instances = peer, instances
			jobs = append(jobs, like)
		}
	}
	return jobs
}

// numbers returns the numbers of instances with which p is measured.
func (b *bench) numbers(p *peer) []int {
	if p.shared {
		return b.instances
	}
	return []int{1}
}

func (b *bench) wants(policy string) bool {
	return slices.Contains(strings.Split(b.settings.policies, ","), policy)
}

// nextSettling returns how long Cassandra is warmed up before j is measured (0: not at all), and notes it: once for each
// peer and policy, with their first keys, connections and number of instances; the first time takes longer.
func (b *bench) nextSettling(j job) time.Duration {
	switch {
	case !j.peer.cassandra || j.keys.String() != b.keys[0].String() || j.connections != b.connections[0] || j.instances != b.instances[0]:
		return 0
	case b.settled:
		return b.settling
	}
	b.settled = true
	return b.warm
}

// settle lets Cassandra's Java compile what j needs, before j is measured.
func (b *bench) settle(ctx context.Context, j job) error {
	lasts := b.nextSettling(j)
	if lasts == 0 {
		return nil
	}
	var err error
	if j.keys, err = load.ParseKeys("unique"); err != nil {
		return err
	}
	_, err = b.ask(ctx, j, lasts)
	return err
}

// measure runs one measurement, and adds it to the report.
func (b *bench) measure(ctx context.Context, j job) (*report.Run, error) {
	r, err := b.ask(ctx, j, b.lasts(j))
	if err != nil {
		return nil, err
	}
	b.report.Runs = append(b.report.Runs, r)
	fmt.Fprintf(b.log, "%-8s %-6s %-16s %8.0f/s %9.0f per CPU second, p99 %.1f ms, failed %d, wrongly denied %d, over limit %d %s\n",
		r.Policy, r.Keys, r.Subject(), r.PerSecond(), r.PerCPUSecond(), r.Latency.P99/1000, r.Failed, r.WrongDenials, r.OverAdmitted, r.Wrong)
	return r, b.report.Write(b.out)
}

// ask starts a subject and puts a load on it.
func (b *bench) ask(ctx context.Context, j job, lasts time.Duration) (r *report.Run, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s (%d), %s, %v: %w", j.peer.name, j.instances, j.policy.Name, j.keys, err)
		}
	}()
	b.started++
	s, err := j.peer.start(ctx, b, j)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	r, err = measure.Run(ctx, load.Options{
		Open: s.open, Connections: j.connections, Rate: j.rate, WarmUp: b.warmUp, Duration: lasts,
		Keys: j.keys, Seed: b.seed, Batch: j.peer.batch, Limit: j.limit(), Window: j.policy.Window,
	}, s.service, s.store)
	if err != nil {
		return nil, err
	}
	r.Peer, r.Policy, r.Instances = j.peer.name, j.policy.Name, j.instances
	if j.peer.limitless {
		r.OverAdmitted = 0 // it does not know the limit
	}
	return r, nil
}

// limit is the limit that the peer must apply to keys.
func (j job) limit() int64 {
	if j.peer.limitless {
		return 1 << 40
	}
	return j.policy.Limit
}

// verdict returns an error if any decision was wrong or, in a smoke test, if any call failed.
func (b *bench) verdict() (err error) {
	for _, r := range b.report.Runs {
		if r.Wrong != "" {
			err = errors.Join(err, fmt.Errorf("%s, %s, %s: %s", r.Subject(), r.Policy, r.Keys, r.Wrong))
		}
		if b.smoke && (r.Failed > 0 || r.Sent == 0) {
			err = errors.Join(err, fmt.Errorf("%s, %s, %s: %d of %d failed", r.Subject(), r.Policy, r.Keys, r.Failed, r.Sent))
		}
	}
	if len(b.report.Runs) == 0 {
		err = errors.New("no peer could be measured")
	}
	return errors.Join(err, b.bareIsAsLong())
}

// bareIsAsLong returns an error if bare's answers are not as long as ratelimitd's.
func (b *bench) bareIsAsLong() error {
	const tolerance = .1 // names and numbers differ
	bare, embedded := b.unique("bare"), b.unique("embedded")
	if bare == nil || embedded == nil || math.Abs(bare.AnswerBytes/embedded.AnswerBytes-1) < tolerance {
		return nil
	}
	return fmt.Errorf("answers of bare have %.0f bytes, those of ratelimitd %.0f: update peers/bare",
		bare.AnswerBytes, embedded.AnswerBytes)
}

// unique returns the first run of a peer in which all calls were allowed.
func (b *bench) unique(peer string) *report.Run {
	for _, r := range b.report.Runs {
		if r.Peer == peer && r.Keys == "unique" {
			return r
		}
	}
	return nil
}
