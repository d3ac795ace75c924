package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Cells keeps small values under names. They change only by compare-and-set, never expire and are never removed.
type Cells interface {
	// Get returns the cell of name, the zero Cell if there is none. A read with latest completes writes in progress and
	// sees every Set that took effect before; one without sees every Set that was answered before.
	Get(ctx context.Context, name string, latest bool) (Cell, error)
	// Set sets the value of name if its version is still have; zero: if there is none. It returns the new version. An
	// error that wraps ErrConflict means that the condition did not hold. After any other error the value may be set,
	// now or later, as long as the version is have.
	Set(ctx context.Context, name string, have Version, value []byte) (Version, error)
}

// Cell is a value with its version.
type Cell struct {
	Value   []byte
	Version Version // new after every change; zero if there is no value
}

// Version identifies a state of a cell. None is used twice.
type Version [16]byte

// ErrConflict means that the condition of a Set did not hold.
var ErrConflict = errors.New("the cell has changed")

// HeartbeatStore holds members' heartbeats. They expire unless they are renewed.
type HeartbeatStore interface {
	// Heartbeat stores b in place of the member's earlier heartbeat.
	Heartbeat(ctx context.Context, b Heartbeat) error
	// Heartbeats returns the latest heartbeat of every member that is alive, and perhaps of some that
	// died a moment ago.
	Heartbeats(ctx context.Context) ([]Heartbeat, error)
}

// Heartbeat is a member's sign of life.
type Heartbeat struct {
	Member
	Count     int64 `json:"count"`               // number of heartbeats so far
	Left      bool  `json:"left,omitempty"`      // it is the last heartbeat: the member's row says out
	Refused   []ID  `json:"refused,omitempty"`   // members that refuse this one's connections
	Unreached []ID  `json:"unreached,omitempty"` // members that do not answer this one
	Late      []ID  `json:"late,omitempty"`      // members that answer this one late
	Load      Load  `json:"load,omitzero"`       // share of its resources that it uses
	All       bool  `json:"all,omitempty"`       // it wants all members to own slots

	Unloads  bool     `json:"unloads,omitempty"`  // it may have units only in memory, and writes them before their slots move
	Unloaded []uint64 `json:"unloaded,omitempty"` // sums of the plans for which it has written them
	Plan     *Plan    `json:"plan,omitempty"`     // the view that it proposes once all members have unloaded for it; nil: none
}

// Store keeps members and views.
type Store interface {
	Cells
	HeartbeatStore
}

// row is the content of a member's own cell. An id without a row counts as out.
type row struct {
	State     string `json:"state"`
	Confirmed int64  `json:"confirmed"`
	Address   string `json:"address,omitempty"`
}

// The states of a row.
const (
	stateIn  = "in"
	stateOut = "out"
)

const viewCell = "view"

// rowCell is the name of the cell that holds id's row.
func rowCell(id ID) string { return "member/" + string(id) }

// goneCell is the name of the cell by which id, and no other member, says that it has ended for good, if it can't write
// its row. If the row can't be read, this cell counts as a row that says out.
func goneCell(id ID) string { return "gone/" + string(id) }

// rowWithin is the timeout of a read of a member's row, after which its goneCell is read.
const rowWithin = time.Second

// readView returns the latest view and its version, the zero View if there is none.
func readView(ctx context.Context, cells Cells, latest bool) (View, Version, error) {
	cell, err := cells.Get(ctx, viewCell, latest)
	if err != nil || cell.Version == (Version{}) {
		return View{}, Version{}, err
	}
	var v View
	if err := json.Unmarshal(cell.Value, &v); err != nil {
		return View{}, Version{}, fmt.Errorf("the view can't be read: %w", err)
	}
	return v, cell.Version, nil
}

// readRow returns id's row and its version.
func readRow(ctx context.Context, cells Cells, id ID, latest bool) (row, Version, error) {
	cell, err := cells.Get(ctx, rowCell(id), latest)
	if err != nil {
		return row{}, Version{}, err
	}
	if cell.Version == (Version{}) {
		return row{State: stateOut}, Version{}, nil
	}
	var r row
	if err := json.Unmarshal(cell.Value, &r); err != nil {
		return row{}, Version{}, fmt.Errorf("the row of member %s can't be read: %w", id, err)
	}
	return r, cell.Version, nil
}

// standingOf returns the standing of id. It reports id as out only after a latest read: another read can see an
// unfinished write, and a member that relied on it could meet id still in.
func standingOf(ctx context.Context, cells Cells, id ID) (standing, error) {
	limited, cancel := context.WithTimeout(ctx, rowWithin)
	defer cancel()
	r, _, err := readRow(limited, cells, id, false)
	if err == nil && r.State != stateIn {
		r, _, err = readRow(limited, cells, id, true)
	}
	if err != nil && isGone(ctx, cells, id) {
		return standing{out: true}, nil
	}
	return standing{out: r.State != stateIn, confirmed: r.Confirmed}, err
}

// isGone reports whether id's goneCell is known to exist.
func isGone(ctx context.Context, cells Cells, id ID) bool {
	cell, err := cells.Get(ctx, goneCell(id), true)
	return err == nil && cell.Version != (Version{})
}

// createGone creates id's goneCell. Only id itself may call it, once it admits nothing any more.
func createGone(ctx context.Context, cells Cells, id ID) (err error) {
	for {
		_, err = cells.Set(ctx, goneCell(id), Version{}, encode(row{State: stateOut}))
		if err == nil || errors.Is(err, ErrConflict) {
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf("storing that member %s is gone: %w", id, err)
		}
	}
}

// setOut makes id's row say out, and returns nil once it surely does. After an attempt without an answer it reads the
// row and tries again.
func setOut(ctx context.Context, cells Cells, id ID) error {
	for {
		r, version, err := readRow(ctx, cells, id, true)
		if err != nil {
			return err
		}
		if r.State != stateIn && version != (Version{}) {
			return nil
		}
		r.State = stateOut
		_, err = cells.Set(ctx, rowCell(id), version, encode(r))
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("setting out member %s: %w", id, err)
		}
	}
}

// encode returns the stored form of v. All stored types can be encoded.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
