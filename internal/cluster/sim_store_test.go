package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// simStore is a store of cells with a few replicas. A change is decided at one moment and settled at a later one, and in between
// only some reads see it. Answers are lost, and changes that were given up may take effect later, while their condition holds.
type simStore struct {
	mu      sync.Mutex
	rng     *rand.Rand
	cells   map[string]*simCell
	beats   map[ID]simHeartbeat
	version uint64
	slow    time.Duration // the longest that half of a request takes
	loses   float64       // part of the changes whose answers are lost
	stalls  float64       // share of the messages between instances and the counts that take up to 2 s

	reads atomic.Int64 // of members' rows

	dark map[string]time.Time // cells whose nodes are gone, and until when
}

type simCell struct {
	settled, decided Cell
}

type simHeartbeat struct {
	beat Heartbeat
	at   time.Time
}

func newSimStore(seed uint64) *simStore {
	return &simStore{
		rng: rand.New(rand.NewPCG(seed, 1)), cells: make(map[string]*simCell), beats: make(map[ID]simHeartbeat),
		dark: make(map[string]time.Time),
		slow: 8 * time.Millisecond, loses: 0.02, stalls: 0.02,
	}
}

var (
	errLostAnswer = errors.New("no answer")
	errDark       = errors.New("not enough nodes are alive")
)

// darken takes the nodes of a cell away for d.
func (s *simStore) darken(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dark[name] = time.Now().Add(d)
}

// reach waits for a cell's nodes. Those that are gone are noticed at once, or by a timeout.
func (s *simStore) reach(ctx context.Context, name string) error {
	s.mu.Lock()
	dark, wait := time.Now().Before(s.dark[name]), time.Duration(s.rng.IntN(2))*700*time.Millisecond
	s.mu.Unlock()
	switch {
	case !dark:
		return s.delay(ctx)
	case wait == 0:
		return errDark
	}
	select {
	case <-time.After(wait):
		return errDark
	case <-ctx.Done():
		return ctx.Err()
	}
}

// delay waits for a part of a request's time.
func (s *simStore) delay(ctx context.Context) error {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(s.slow) + 1))
	if s.rng.IntN(200) == 0 {
		d += time.Duration(s.rng.Int64N(int64(400 * time.Millisecond)))
	}
	s.mu.Unlock()
	if d == 0 { // under the race detector, timers of a bubble that are over at once and run at the same time break Go 1.26
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isLost reports whether an answer is lost.
func (s *simStore) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Float64() < s.loses
}

// isStalled reports whether a way takes long.
func (s *simStore) isStalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.Float64() < s.stalls
}

func (s *simStore) cell(name string) *simCell {
	c := s.cells[name]
	if c == nil {
		c = new(simCell)
		s.cells[name] = c
	}
	return c
}

// Get reads a cell.
func (s *simStore) Get(ctx context.Context, name string, latest bool) (Cell, error) {
	if err := s.reach(ctx, name); err != nil {
		return Cell{}, err
	}
	s.mu.Lock()
	if strings.HasPrefix(name, "member/") {
		s.reads.Add(1)
	}
	c := s.cell(name)
	if latest {
		c.settled = c.decided
	}
	found := c.settled
	if !latest && s.rng.IntN(2) == 0 {
		found = c.decided
	}
	s.mu.Unlock()
	return found, s.delay(ctx)
}

// Set compares and sets a cell.
func (s *simStore) Set(ctx context.Context, name string, have Version, value []byte) (Version, error) {
	if err := s.reach(ctx, name); err != nil {
		return Version{}, err
	}
	if s.isLost() {
		go s.later(name, have, value)
		return Version{}, errLostAnswer
	}
	version, ok := s.decide(name, have, value)
	if !ok {
		return Version{}, ErrConflict
	}
	if err := s.delay(ctx); err != nil || s.isLost() {
		return Version{}, errors.Join(errLostAnswer, err)
	}
	s.mu.Lock()
	if c := s.cell(name); c.decided.Version == version {
		c.settled = c.decided
	}
	s.mu.Unlock()
	return version, s.delay(ctx)
}

// later makes a change that was given up.
func (s *simStore) later(name string, have Version, value []byte) {
	s.mu.Lock()
	d := time.Duration(s.rng.Int64N(int64(3 * time.Second)))
	s.mu.Unlock()
	time.Sleep(d)
	s.decide(name, have, value)
}

func (s *simStore) decide(name string, have Version, value []byte) (Version, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cell(name)
	c.settled = c.decided // a compare-and-set settles first what is under way
	if c.decided.Version != have {
		return Version{}, false
	}
	s.version++
	var v Version
	for i := range 8 {
		v[i] = byte(s.version >> (8 * i))
	}
	c.decided = Cell{Value: value, Version: v}
	return v, true
}

// Heartbeat keeps a heartbeat.
func (s *simStore) Heartbeat(ctx context.Context, b Heartbeat) error {
	if err := s.delay(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.beats[b.ID] = simHeartbeat{b, time.Now()}
	s.mu.Unlock()
	return s.delay(ctx)
}

// Heartbeats returns the heartbeats that are not too old.
func (s *simStore) Heartbeats(ctx context.Context) (all []Heartbeat, err error) {
	if err := s.delay(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	for _, b := range s.beats {
		if time.Since(b.at) < HeartbeatTTL {
			all = append(all, b.beat)
		}
	}
	s.mu.Unlock()
	return all, s.delay(ctx)
}
