package embedded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// recordFormat is the first byte of every record's value. Records of a later format are refused, so that they are not
// misread.
const recordFormat = 1

// detailsFormat is the format of changes with details. Other changes still have recordFormat, so that an earlier version
// can read them.
const detailsFormat = 2

var errDamaged = errors.New("it is damaged")

// encode returns e as a record's value. lead is the result of Store.clockLead.
func (e *entry) encode(lead store.Instant) []byte {
	w := writer{recordFormat}
	w.int(int64(e.expires))
	w.int(int64(e.reset))
	w.len(len(e.counts))
	for i := range e.counts {
		w.count(&e.counts[i])
	}
	for span := range store.SpanCount {
		w.log(e.logOf(span))
	}
	w.removed(e.rare)
	w.cell(e.cell, lead)
	return w
}

// decodeEntry returns the entry that encode made b from.
func decodeEntry(b []byte, texts interned) (*entry, error) {
	r, err := newReader(b, recordFormat)
	if err != nil {
		return nil, err
	}
	e := &entry{expires: store.Instant(r.Int()), reset: store.Instant(r.Int())}
	r.Bad = r.Bad || e.reset < 0 // no reset is negative
	for range r.Len() {
		e.counts = append(e.counts, r.count(texts))
	}
	for span := range store.SpanCount {
		if l := r.log(); len(l.events) > 0 {
			own := e.openLog(span)
			l.marks = own.marks
			*own = l
		}
	}
	for range r.Len() {
		rare := e.rareFields()
		rare.removed = append(rare.removed, r.ID())
	}
	e.cell = r.cell()
	return e, r.end()
}

// encode returns p without its ID as a record's value. lead is the result of Store.clockLead.
func (p *published) encode(lead store.Instant) []byte {
	w := writer{recordFormat}
	if p.Details != "" {
		w = writer{detailsFormat}
	}
	w.text([]byte(p.Kind))
	key := p.Key.Bytes()
	w = append(w, key...)
	expires := p.expires
	if expires < store.Distant {
		expires += lead
	}
	for _, n := range []int64{int64(p.Until), int64(p.Strikes), int64(p.TTL), int64(p.at + lead), int64(expires)} {
		w.int(n)
	}
	if p.Details != "" {
		w.text([]byte(p.Details))
	}
	return w
}

// decodeChange returns the change that encode made b from, without its ID.
func decodeChange(b []byte) (published, error) {
	r, err := newReader(b, detailsFormat)
	if err != nil {
		return published{}, err
	}
	var p published
	p.Kind = store.ChangeKind(r.Text())
	p.Key = r.Key()
	p.Until, p.Strikes, p.TTL = store.Instant(r.Int()), int(r.Int()), time.Duration(r.Int())
	p.at, p.expires = store.Instant(r.Int()), store.Instant(r.Int())
	if b[0] >= detailsFormat {
		p.Details = string(r.Text())
	}
	return p, r.end()
}

// interned has texts that many records share, each of them once.
type interned map[string]policy.LimitID

func (t interned) intern(text []byte) policy.LimitID {
	id, ok := t[string(text)]
	if !ok {
		id = policy.LimitID(text)
		t[string(text)] = id
	}
	return id
}

// writer is a record's value while it is written.
type writer []byte

func (w *writer) int(n int64) { *w = binary.AppendVarint(*w, n) }
func (w *writer) len(n int)   { *w = binary.AppendUvarint(*w, uint64(n)) }

func (w *writer) text(b []byte) {
	w.len(len(b))
	*w = append(*w, b...)
}

func (w *writer) count(c *store.Count) {
	w.text([]byte(c.Limit))
	for _, n := range []int64{int64(c.Start), int64(c.Expires), int64(c.Epoch), c.Units} {
		w.int(n)
	}
}

// log writes each event's instant as the time since the one before it. A nil log is empty.
func (w *writer) log(l *eventLog) {
	if l == nil || len(l.events) == 0 {
		w.len(0)
		return
	}
	w.len(len(l.events))
	w.int(int64(l.ttl.duration()))
	last := store.Instant(0)
	for i := range l.events {
		e := &l.events[i]
		*w = append(*w, e.ID[:]...)
		w.int(int64(e.At - last))
		w.int(e.Cost)
		w.int(int64(e.Ends))
		last = e.At
	}
}

// removed writes the ids of removed events. A nil r has none.
func (w *writer) removed(r *rare) {
	if r == nil {
		r = new(rare)
	}
	w.len(len(r.removed))
	for _, id := range r.removed {
		*w = append(*w, id[:]...)
	}
}

// cell writes c. A zero version means that there is no cell.
func (w *writer) cell(c *cell, lead store.Instant) {
	if c == nil {
		c = new(cell)
	}
	*w = append(*w, c.Version[:]...)
	expires := c.expires
	if expires != 0 && expires < store.Distant {
		expires += lead
	}
	w.int(int64(expires))
	w.text(c.Value)
}

// reader reads a record's value.
type reader struct{ store.Reader }

// newReader returns a reader of the value b that continues after its format. The format may be newest or an earlier one.
func newReader(b []byte, newest byte) (*reader, error) {
	switch {
	case len(b) == 0 || b[0] == 0:
		return nil, errDamaged
	case b[0] > newest:
		return nil, fmt.Errorf("it is in format %d, of a later version of this program, which reads %d", b[0], newest)
	}
	return &reader{store.Reader{B: b[1:]}}, nil
}

// end returns an error if reading has failed, or has left bytes unread.
func (r *reader) end() error {
	if r.Bad || len(r.B) > 0 {
		return errDamaged
	}
	return nil
}

func (r *reader) count(texts interned) store.Count {
	return store.Count{
		Limit: texts.intern(r.Text()), Start: store.Instant(r.Int()), Expires: store.Instant(r.Int()),
		Epoch: store.Instant(r.Int()), Units: r.Int(),
	}
}

func (r *reader) log() (l eventLog) {
	n := r.Len()
	if n == 0 {
		return l
	}
	l.ttl = secondsOf(time.Duration(r.Int()))
	l.events = make([]store.Event, n)
	last := store.Instant(0)
	for i := range l.events {
		e := &l.events[i]
		*e = store.Event{ID: r.ID(), At: last + store.Instant(r.Int()), Cost: r.Int(), Ends: store.Instant(r.Int())}
		r.Bad = r.Bad || e.Cost < 1 || i > 0 && e.At < last // an event must count, and a log must be in order to be searched
		last = e.At
	}
	l.summarize()
	return l
}

func (r *reader) cell() *cell {
	c := &cell{Cell: store.Cell{Version: r.ID()}, expires: store.Instant(r.Int())}
	c.Value = append([]byte(nil), r.Text()...)
	if c.Version == (store.EventID{}) {
		return nil
	}
	return c
}
