package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// line is one line of a file, with one of its members set.
type line struct {
	Header *Header     `json:",omitempty"`
	Call   *Call       `json:",omitempty"`
	Fault  *Fault      `json:",omitempty"`
	Whole  *Span       `json:",omitempty"`
	Stall  *Span       `json:",omitempty"`
	Clock  *ClockTest  `json:",omitempty"`
	Owners *OwnersTest `json:",omitempty"`
}

// Write writes h to w, calls in the order in which they were made.
func Write(w io.Writer, h *History) error {
	buffered := bufio.NewWriter(w)
	lines := json.NewEncoder(buffered)
	err := lines.Encode(line{Header: &h.Header})
	for i := range h.Faults {
		err = errors.Join(err, lines.Encode(line{Fault: &h.Faults[i]}))
	}
	for i := range h.Whole {
		err = errors.Join(err, lines.Encode(line{Whole: &h.Whole[i]}))
	}
	for i := range h.Stalls {
		err = errors.Join(err, lines.Encode(line{Stall: &h.Stalls[i]}))
	}
	for i := range h.Clocks {
		err = errors.Join(err, lines.Encode(line{Clock: &h.Clocks[i]}))
	}
	if h.Owners != nil {
		err = errors.Join(err, lines.Encode(line{Owners: h.Owners}))
	}
	for i := range h.Calls {
		err = errors.Join(err, lines.Encode(line{Call: &h.Calls[i]}))
	}
	return errors.Join(err, buffered.Flush())
}

// Read reads a history that Write wrote.
func Read(r io.Reader) (*History, error) {
	h := new(History)
	lines := json.NewDecoder(bufio.NewReader(r))
	for n := 1; ; n++ {
		var l line
		err := lines.Decode(&l)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the history: %w", n, err)
		}
		h.add(&l)
	}
	if h.Header.Policies == nil {
		return nil, errors.New("the history has no header")
	}
	h.Sort()
	return h, nil
}

func (h *History) add(l *line) {
	switch {
	case l.Header != nil:
		h.Header = *l.Header
	case l.Call != nil:
		h.Calls = append(h.Calls, *l.Call)
	case l.Fault != nil:
		h.Faults = append(h.Faults, *l.Fault)
	case l.Whole != nil:
		h.Whole = append(h.Whole, *l.Whole)
	case l.Stall != nil:
		h.Stalls = append(h.Stalls, *l.Stall)
	case l.Clock != nil:
		h.Clocks = append(h.Clocks, *l.Clock)
	case l.Owners != nil:
		h.Owners = l.Owners
	}
}

// Sort sorts all entries by their beginning.
func (h *History) Sort() {
	slices.SortStableFunc(h.Calls, func(a, b Call) int { return cmp.Or(cmp.Compare(a.Called, b.Called), cmp.Compare(a.N, b.N)) })
	slices.SortStableFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	bySpan := func(a, b Span) int { return cmp.Compare(a.From, b.From) }
	slices.SortStableFunc(h.Whole, bySpan)
	slices.SortStableFunc(h.Stalls, bySpan)
}
