package cas

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// latest remembers cells as this instance wrote or read them last, so that the next change need not read the cell. The
// next write is conditional on the version, so that no decision rests on a cell that another instance has written
// meanwhile.
type latest struct{ cells bounded.Recent[seenCell] }

// seenCell is a cell as this instance wrote or read it, or a mark that other instances write it.
type seenCell struct {
	store.Cell           // zero: there was none
	read       time.Time // zero: it was written
	distrust   int       // number of changes that must read the cell all the same
}

const (
	// mostLatest bounds cells, which have up to a kilobyte: some 16 MiB of them.
	mostLatest = 1 << 13
	// distrustFor is the number of changes that read the cell after another instance wrote it: a failed attempt costs
	// more than a read, and that instance may write again. Under owners no other instance does.
	distrustFor = 8
)

func newLatest() *latest { return &latest{cells: bounded.Recent[seenCell]{Most: mostLatest}} }

// state returns the state of t's cell as it was written last, or read within the last store timeout; false: it must be
// read. Older reads are not used: of a cell that has come and gone since, the next one would list no version.
func (l *latest) state(t *demand.Target, o *demand.Settings) (s store.State, ok bool) {
	c, found := l.cells.Get(t.Key)
	if !found || c.distrust > 0 || !c.read.IsZero() && time.Since(c.read) > o.StoreTimeout {
		return store.State{}, false
	}
	return store.State{Cell: c.Cell}, true
}

// wrote remembers that w is in key's cell now.
func (l *latest) wrote(key store.Key, w *store.CellWrite) {
	was, _ := l.cells.Get(key)
	l.cells.Put(key, seenCell{Cell: store.Cell{Version: w.Version, Value: w.Value}, distrust: max(0, was.distrust-1)})
}

// saw remembers cell, which began to be read at an instant. It keeps a cell that this instance wrote itself.
func (l *latest) saw(key store.Key, cell store.Cell, began time.Time) {
	if c, found := l.cells.Get(key); !found || !c.read.IsZero() {
		l.cells.Put(key, seenCell{Cell: cell, read: began})
	}
}

// wasWrong notes that the remembered cell of key is not the stored one, or may not be.
func (l *latest) wasWrong(key store.Key) { l.cells.Put(key, seenCell{distrust: distrustFor}) }
