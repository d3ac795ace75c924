package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Cells keeps small values under names. They change by compare-and-set alone, never expire
// and are never removed.
type Cells interface {
	// Get returns what is kept under name, the zero Cell if nothing is. A read that is
	// latest settles what is under way and sees every Set that took effect before; another
	// one sees every Set that was answered before.
	Get(ctx context.Context, name string, latest bool) (Cell, error)
	// Set keeps value under name if what is there still has the version have; zero: if
	// nothing is there. It returns the new version. An error that wraps ErrConflict says
	// that it did not hold. After any other error the value may be kept, now or later, for
	// as long as the version is have.
	Set(ctx context.Context, name string, have Version, value []byte) (Version, error)
}

// Cell is a value with the version that it is kept under.
type Cell struct {
	Value   []byte
	Version Version // another one after every change; zero: there is no value
}

// Version tells the states of a cell apart. None is used twice.
type Version [16]byte

// ErrConflict is a Set whose condition did not hold.
var ErrConflict = errors.New("the cell has changed")

// Beats are members' signs of life. They are gone by themselves when they are not renewed.
type Beats interface {
	// Beat makes b known in place of the member's earlier one.
	Beat(ctx context.Context, b Beat) error
	// Beats returns the latest beat of every member that is alive, and perhaps of some that
	// died a moment ago.
	Beats(ctx context.Context) ([]Beat, error)
}

// Beat is a member's sign of life.
type Beat struct {
	Member
	Count     int64 `json:"count"`               // beats so far: one more each time
	Left      bool  `json:"left,omitempty"`      // the last one: its row says out
	Refused   []ID  `json:"refused,omitempty"`   // members that refuse its connections
	Unreached []ID  `json:"unreached,omitempty"` // members that do not answer it
	Late      []ID  `json:"late,omitempty"`      // members that answer it late
	Load      Load  `json:"load,omitzero"`       // how much of what it has it uses
	All       bool  `json:"all,omitempty"`       // it wants all members to own slices
}

// Store is where members and views are kept.
type Store interface {
	Cells
	Beats
}

// row is what a member's own cell says. The row of an id that has none reads as out.
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

// goneCell is the name of the cell that says that id has ended for good: by itself alone, where its row can't be
// written. It counts as a row that says out.
func goneCell(id ID) string { return "gone/" + string(id) }

// rowWithin is for how long a member's row is waited for before its goneCell is asked for.
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

// standingOf returns how id stands. That it is out is believed of a latest read only: another
// one can see what is not settled, and whoever goes by it could meet a member that is not.
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

// isGone reports whether id is known to have said by its goneCell that it has ended.
func isGone(ctx context.Context, cells Cells, id ID) bool {
	cell, err := cells.Get(ctx, goneCell(id), true)
	return err == nil && cell.Version != (Version{})
}

// sayGone makes id's goneCell. Only id may, once it admits nothing any more.
func sayGone(ctx context.Context, cells Cells, id ID) (err error) {
	for {
		_, err = cells.Set(ctx, goneCell(id), Version{}, encode(row{State: stateOut}))
		if err == nil || errors.Is(err, ErrConflict) {
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return fmt.Errorf("saying that member %s is gone: %w", id, err)
		}
	}
}

// setOut makes id's row say out, and returns nil once it surely does. A try without an answer
// is none: the row is read again, and tried again.
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

// encode returns v as it is kept. Everything that is kept can be encoded.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
