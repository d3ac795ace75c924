package embedded

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Disk keeps records across restarts of the process. A store calls one method at a time.
type Disk interface {
	// Load calls visit for every record that was saved and not removed since. A record is valid until visit returns. An error
	// of visit ends the loading, and is returned.
	Load(visit func(*Record) error) error
	// Save stores and removes either all records in r or none. Once it has returned nil, they survive a loss of power. Within
	// a table, r is in ascending order of keys, which suits trees.
	Save(r []Record) error
}

// Record is the saved state of one key, or one saved change.
type Record struct {
	Table Table
	Key   []byte // within the table
	Value []byte // nil: the record is to be removed

	fresh bool // the disk has had no record of this key
}

// Table is the kind of a record.
type Table string

// The tables.
const (
	TableKeys    Table = "keys"    // states, by store.Key
	TableChanges Table = "changes" // changes, by the ID of store.Change
)

// DefaultSyncEvery is the default of Options.SyncEvery.
const DefaultSyncEvery = time.Second

// Open returns a store with all data on opts.Disk that has not expired by the wall clock. If a record can't be read, the error
// names its table, and the disk is left as it is.
func Open(opts *Options) (*Store, error) {
	s := New(opts)
	s.saver.disk = opts.Disk
	s.saver.every, s.saver.log = opts.SyncEvery, opts.Logger
	if s.saver.every == 0 {
		s.saver.every = DefaultSyncEvery
	}
	if s.saver.log == nil {
		s.saver.log = slog.New(slog.DiscardHandler)
	}
	s.saver.changes, s.saver.saved = make(map[store.EventID]struct{}), s.started
	for i := range s.shards {
		s.shards[i].dirty = make(map[store.Key]struct{})
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// saver has the state of a store's saves to its disk.
type saver struct {
	disk    Disk // nil: counts are in memory only
	every   time.Duration
	log     *slog.Logger
	changes map[store.EventID]struct{} // the changes on the disk
	failed  int                        // failed saves in a row
	saved   time.Time                  // the start of the last save that succeeded

	mu     sync.Mutex
	status Saving
}

// Saving is the state of a store's saves to its disk.
type Saving struct {
	Failures int64     // failed saves since the store was opened
	Since    time.Time // counts after this time are not on the disk because saves fail; zero: saves don't fail
}

// Saving returns the state of s's saves. A store without a disk has no failures.
func (s *Store) Saving() Saving {
	s.saver.mu.Lock()
	defer s.saver.mu.Unlock()
	return s.saver.status
}

// setStatus sets the result of Saving after a save that began at a time.
func (sv *saver) setStatus(began time.Time, err error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if err == nil {
		sv.saved, sv.status.Since = began, time.Time{}
		return
	}
	sv.status.Since = sv.saved
	sv.status.Failures++
}

// load fills s, which is not in use yet, with the data on its disk.
func (s *Store) load() error {
	now, texts := s.instant(), make(interned)
	return s.saver.disk.Load(func(r *Record) error {
		if r.Table == TableChanges {
			return s.loadChange(r, now)
		}
		return s.loadKey(r, now, texts)
	})
}

func (s *Store) loadKey(r *Record, now store.Instant, texts interned) error {
	e, err := decodeEntry(r.Value, texts)
	if err != nil || len(r.Key) != store.KeySize {
		return recordError(r, err)
	}
	k := store.KeyFrom([store.KeySize]byte(r.Key))
	sh := s.shard(k)
	kept := sh.entries.add(k, false)
	*kept = *e
	kept.key, kept.log.saved = k, true
	kept.bound(now)
	kept.cell.bound(now)
	kept.cell.outlast(now)
	if kept.isOver(now, now) {
		sh.drop(s, kept)
	}
	return nil
}

func (s *Store) loadChange(r *Record, now store.Instant) error {
	p, err := decodeChange(r.Value)
	if err != nil || len(r.Key) != len(p.ID) {
		return recordError(r, err)
	}
	copy(p.ID[:], r.Key)
	if ahead := p.at - now; ahead > 0 { // it was dated by a clock that was ahead
		p.at = now
		if !p.Stays() {
			p.expires -= ahead
		}
	}
	s.saver.changes[p.ID] = struct{}{}
	if p.Kind == store.ChangeHold { // it may have ended while no process ran
		p.expires = max(p.expires, now.Add(loadedLast))
	}
	if p.expires > now {
		s.feed.put(p)
	}
	return nil
}

// loadedLast is the least time to live of cells and holds from a disk. Within that time this process gives back holds that
// ended before it started. Their claims, which are as old, must still say which of them were settled.
const loadedLast = time.Minute

func recordError(r *Record, err error) error {
	if err == nil {
		err = errDamaged
	}
	return fmt.Errorf("a record of the table %q: %w", r.Table, err)
}

// saves saves the changes in intervals until ctx ends, and then once more. It returns the error of that last save.
func (s *Store) saves(ctx context.Context) error {
	if s.saver.disk == nil {
		return nil
	}
	tick := time.NewTicker(s.saver.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if err := s.save(); err != nil {
				return fmt.Errorf("saving the last counts: %w", err)
			}
			return nil
		case <-tick.C:
			began := s.now()
			err := s.save()
			s.saver.setStatus(began, err)
			s.saver.report(err)
		}
	}
}

// report logs the outcome of a save if it differs from that of the save before.
func (sv *saver) report(err error) {
	switch {
	case err == nil && sv.failed > 0:
		sv.log.Info("counts are saved again", "failures", sv.failed)
	case err != nil && sv.failed == 0:
		sv.log.Error("counts can't be saved: they are in memory only, and would be lost with this process", "error", err,
			"again_in", sv.every)
	}
	if sv.failed++; err == nil {
		sv.failed = 0
	}
}

// save saves the changes since the last save, and those that earlier saves failed to save.
func (s *Store) save() error {
	records := s.collect()
	keys := len(records)
	records = s.collectChanges(records)
	for _, table := range [][]Record{records[:keys], records[keys:]} {
		slices.SortFunc(table, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	}
	if len(records) == 0 {
		return nil
	}
	if err := s.saver.disk.Save(records); err != nil {
		s.restore(records[:keys])
		return err
	}
	for _, r := range records[keys:] {
		if id := store.EventID(r.Key); r.Value != nil {
			s.saver.changes[id] = struct{}{}
		} else {
			delete(s.saver.changes, id)
		}
	}
	return nil
}

// collect returns records of the keys that have changed, in their present state. It waits until no write of several keys is
// in progress, so that each such write is collected as a whole.
func (s *Store) collect() (records []Record) {
	s.several.Lock()
	defer s.several.Unlock()
	lead := s.clockLead()
	for i := range s.shards {
		records = s.shards[i].collect(records, lead)
	}
	return records
}

func (sh *shard) collect(records []Record, lead store.Instant) []Record {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for k := range sh.dirty {
		r := Record{Table: TableKeys, Key: k.Bytes()}
		if e := sh.entries.find(&k); e != nil {
			r.Value, r.fresh = e.encode(lead), !e.log.saved
			e.log.dirty, e.log.saved = false, true
		}
		records = append(records, r)
	}
	clear(sh.dirty)
	return records
}

// restore marks the keys of records as changed again after their save has failed.
func (s *Store) restore(records []Record) {
	for i := range records {
		k := store.KeyFrom([store.KeySize]byte(records[i].Key))
		s.shard(k).restore(k, records[i].fresh)
	}
}

func (sh *shard) restore(k store.Key, fresh bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries.find(&k)
	if e == nil && fresh { // the key was dropped meanwhile, and is not on the disk
		delete(sh.dirty, k)
		return
	}
	sh.dirty[k] = struct{}{}
	if e != nil {
		e.log.dirty, e.log.saved = true, !fresh
	}
}

// collectChanges appends to records the changes that are not on the disk yet, and removals of the changes on the disk that
// have expired.
func (s *Store) collectChanges(records []Record) []Record {
	lead := s.clockLead()
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for id, p := range s.feed.changes {
		if _, there := s.saver.changes[id]; !there {
			records = append(records, Record{Table: TableChanges, Key: id[:], Value: p.encode(lead)})
		}
	}
	for id := range s.saver.changes {
		if _, lives := s.feed.changes[id]; !lives {
			records = append(records, Record{Table: TableChanges, Key: id[:]})
		}
	}
	return records
}

// touch notes that e has changed. The store must have a disk.
func (sh *shard) touch(e *entry) {
	if !e.log.dirty {
		e.log.dirty = true
		sh.dirty[e.key] = struct{}{}
	}
}

// drop removes e from sh. If e was never saved, it leaves no note for the disk, so that the notes for a disk that keeps
// failing don't outnumber the keys.
func (sh *shard) drop(s *Store, e *entry) {
	if e.cell != nil {
		s.claims.add(e.cell.claim, -1)
	}
	if sh.dirty != nil {
		if e.log.saved {
			sh.dirty[e.key] = struct{}{}
		} else {
			delete(sh.dirty, e.key)
		}
	}
	sh.entries.remove(e)
}

// newEntry returns an empty entry for w. The disk may still have an earlier entry of the key.
func (sh *shard) newEntry(w *store.Write) *entry {
	_, dirty := sh.dirty[w.Key]
	e := sh.entries.add(w.Key, len(w.Logs) > 0 && len(w.Events) > 0)
	e.log.dirty, e.log.saved = dirty, dirty
	return e
}
