package cas

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// latest remembers cells as this instance wrote them last, so that the next change need not read the cell. The next
// write is conditional on the version, so nothing rests on a cell that somebody else has written meanwhile.
type latest struct{ cells bounded.Recent[seenCell] }

// seenCell is a cell as it was written, and what is known of others that write it.
type seenCell struct {
	store.Cell
	distrust int // changes that read the cell all the same
}

const (
	// mostLatest bounds cells, which have up to a kilobyte: some 16 MiB of them.
	mostLatest = 1 << 13
	// distrustFor is how many changes read the cell after somebody else wrote it: to try in vain costs more than a
	// read, and who wrote it may do so again. Under owners nobody else does.
	distrustFor = 8
)

func newLatest() *latest { return &latest{cells: bounded.Recent[seenCell]{Most: mostLatest}} }

// state returns the state of t's cell as it was written last; false: it has to be read.
func (l *latest) state(t *demand.Target) (s store.State, ok bool) {
	c, _ := l.cells.Get(t.Key)
	if c.Version == (store.EventID{}) || c.distrust > 0 {
		return store.State{}, false
	}
	return store.State{Cell: c.Cell}, true
}

// wrote remembers that w is in t's cell now, unless there is a log beside it, which has to be read in any case.
func (l *latest) wrote(t *demand.Target, w *store.CellWrite) {
	if len(t.Plan.Logs) > 0 {
		return
	}
	was, _ := l.cells.Get(t.Key)
	l.cells.Put(t.Key, seenCell{Cell: store.Cell{Version: w.Version, Value: w.Value}, distrust: max(0, was.distrust-1)})
}

// wasWrong notes that what was remembered of key is not in its cell, or may not be.
func (l *latest) wasWrong(key store.Key) { l.cells.Put(key, seenCell{distrust: distrustFor}) }
