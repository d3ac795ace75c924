package schedule

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Fault is a fault of a node or a process, for a while.
type Fault struct {
	At     time.Duration
	Kind   string
	Target int
	Lasts  time.Duration // until it is undone; a killed node takes longer to return
}

// Sizes of faults. Targets are frozen for longer than a store timeout, and for less than a
// client waits.
const (
	shortest = time.Second
	longest  = 6 * time.Second
	majority = 4 * time.Second // the longest time that a majority is frozen
	quietFor = 4 * time.Second // before the first fault, and after the last
	nodeBack = 25 * time.Second
	pauses   = 6 * time.Second
)

// Sizes of faults between processes: either too short to change an owner, or so long that every process decides for
// every key, and calls are decided that way for a while.
var (
	moments  = [2]time.Duration{100 * time.Millisecond, 700 * time.Millisecond}
	longCuts = [2]time.Duration{10 * time.Second, 15 * time.Second}
)

// weight is how often a kind of fault is drawn, relative to others.
type weight struct {
	kind string
	n    int
}

var (
	ofNodes     = []weight{{history.NodeKill, 3}, {history.NodePause, 3}, {history.NodeSlow, 3}, {history.MajorityPause, 2}}
	ofProcesses = []weight{{history.ProcessKill, 4}, {history.ProcessStop, 1}, {history.ProcessPause, 3}, {history.ProcessSlow, 2}}
	ofPeers     = []weight{{history.PeersCut, 2}, {history.PeersHeld, 2}}
)

// Peers reports whether keys have owners in a run, to which other processes hand on calls.
// In one of three runs every process decides for every key.
func Peers(seed uint64) bool { return seed%3 != 0 }

// LongCuts reports whether connections between processes are disturbed for long in a run, instead of for moments: keys
// have no owners for a minute after that.
func LongCuts(seed uint64) bool { return seed%3 == 2 }

// Faults returns the faults of nodes, and those of processes and between them, each in sequence. They hit at most a
// minority of either, except that a majority of nodes is frozen at times. Each kind occurs once early on.
func Faults(seed uint64, nodes, processes int, lasts time.Duration) (node, process []Fault) {
	kinds, cuts := ofProcesses, moments
	if Peers(seed) {
		kinds = slices.Concat(ofProcesses, ofPeers)
	}
	if LongCuts(seed) {
		cuts = longCuts
	}
	return draw(random(seed, streamNodes), ofNodes, nodes, lasts, cuts), draw(random(seed, streamProcesses), kinds, processes, lasts, cuts)
}

func draw(rng *rand.Rand, kinds []weight, targets int, lasts time.Duration, cuts [2]time.Duration) (faults []Fault) {
	order := rng.Perm(len(kinds))
	for at := quietFor; ; {
		f := Fault{At: at, Kind: pick(rng, kinds), Target: rng.IntN(targets)}
		if n := len(faults); n < len(order) {
			f.Kind = kinds[order[n]].kind
		}
		if f.Lasts = between(rng, shortest, longest); history.OfPeers(f.Kind) {
			f.Lasts = between(rng, cuts[0], cuts[1])
		}
		ends := f.At + f.Lasts
		switch f.Kind {
		case history.MajorityPause:
			f.Lasts = min(f.Lasts, majority)
		case history.NodeKill:
			ends += nodeBack
		case history.ProcessKill, history.ProcessStop:
			f.Lasts /= 3
		}
		if ends > lasts-quietFor {
			return faults
		}
		faults = append(faults, f)
		at = ends + between(rng, shortest, pauses)
	}
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)))
}

func pick(rng *rand.Rand, kinds []weight) string {
	sum := 0
	for _, k := range kinds {
		sum += k.n
	}
	n := rng.IntN(sum)
	for _, k := range kinds {
		if n -= k.n; n < 0 {
			return k.kind
		}
	}
	return ""
}
