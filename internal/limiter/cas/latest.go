package cas

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// latest remembers cells as this instance wrote or read them last, so that the next change need not read the cell. Its
// write is conditional on the cell's version, so it fails if another instance has written the cell meanwhile.
type latest struct{ cells bounded.Recent[seenCell] }

// seenCell is a cell as this instance wrote or read it, or notes that other instances write the cell.
type seenCell struct {
	store.Cell           // zero: the key had no cell
	read       time.Time // zero: this instance wrote it
	distrust   int       // number of changes that must read the cell from the store
}

const (
	// mostLatest bounds cells, which have up to a kilobyte: some 16 MiB of them.
	mostLatest = 1 << 13
	// distrustFor is the number of changes that read the cell after another instance wrote it: that instance may write
	// again, and a failed attempt costs more than a read. With owners, no other instance writes the cell.
	distrustFor = 8
)

func newLatest() *latest { return &latest{cells: bounded.Recent[seenCell]{Most: mostLatest}} }

// state returns the state of t's cell as it was written last, or read within the last store timeout; false: the cell must be
// read. Older reads are not used: meanwhile the cell may have been written and have expired, and the next cell would not
// list these versions.
func (l *latest) state(t *demand.Target, o *demand.Settings) (s store.State, ok bool) {
	c, found := l.cells.Get(t.Key)
	if !found || c.distrust > 0 || !c.read.IsZero() && time.Since(c.read) > o.StoreTimeout {
		return store.State{}, false
	}
	return store.State{Cell: c.Cell}, true
}

// wrote remembers w as key's cell.
func (l *latest) wrote(key store.Key, w *store.CellWrite) {
	was, _ := l.cells.Get(key)
	l.cells.Put(key, seenCell{Cell: store.Cell{Version: w.Version, Value: w.Value}, distrust: max(0, was.distrust-1)})
}

// saw remembers cell as that of key, from a read that began at a time. It does not replace a cell that this instance wrote.
func (l *latest) saw(key store.Key, cell store.Cell, began time.Time) {
	if c, found := l.cells.Get(key); !found || !c.read.IsZero() {
		l.cells.Put(key, seenCell{Cell: cell, read: began})
	}
}

// wasWrong notes that the remembered cell of key is not the stored one, or may not be.
func (l *latest) wasWrong(key store.Key) { l.cells.Put(key, seenCell{distrust: distrustFor}) }
