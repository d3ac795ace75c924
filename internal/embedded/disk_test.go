package embedded_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// run runs store until the test calls the function returned or ends.
func run(t *testing.T, do func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// openFile returns a running store over the file in folder, and a function that ends both.
func openFile(t *testing.T, folder string, opts embedded.Options) (store *embedded.Store, end func()) {
	t.Helper()
	return openFileAnd(t, (*embedded.Store).Run, folder, opts)
}

func openFileAnd(
	t *testing.T, do func(*embedded.Store, context.Context) error, folder string, opts embedded.Options,
) (store *embedded.Store, end func()) {
	t.Helper()
	file, err := datafile.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	opts.Disk = file
	if store, err = embedded.Open(&opts); err != nil {
		t.Fatal(err)
	}
	stop := run(t, func(ctx context.Context) error { return do(store, ctx) })
	return store, sync.OnceFunc(func() {
		stop()
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestConformanceOnDisk runs the suite while what it does is saved all the time. By today's
// date what it counts has expired, and a sweep would forget it.
func TestConformanceOnDisk(t *testing.T) {
	opts := embedded.Options{SyncEvery: 5 * time.Millisecond}
	store, end := openFileAnd(t, (*embedded.Store).RunUnswept, t.TempDir(), opts)
	t.Cleanup(end)
	storetest.Run(t, store)
}

// TestRestartKeepsEverything writes some of all that there is under one key, and reads
// it from a store that knows the folder only.
func TestRestartKeepsEverything(t *testing.T) {
	folder, key, ids := t.TempDir(), keysOf(1, true)[0], store.NewEventIDs().Next
	now := store.InstantOf(time.Now())
	removed := ids(now)
	w := store.Write{
		Key: key,
		Events: []store.Event{
			{ID: ids(now - 1000), At: now - 1000, Cost: 7},
			{ID: removed, At: now, Cost: 1},
			{ID: ids(now), At: now, Cost: policy.MaxCost, Ends: now.Add(time.Minute)},
		},
		Logs: []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 9}, {Span: store.SpanMonth, TTL: time.Hour, Keep: 9}},
		Add: []store.Count{
			{Limit: "a", Start: now, Expires: now + 60_000, Epoch: now - 500, Units: 3},
			{Limit: "long", Start: now, Expires: now + 60_000, Epoch: now - 500, Units: -3},
		},
		Cell:  &store.CellWrite{Version: ids(now), Value: []byte("\x00value"), TTL: time.Hour},
		Reset: now - 5000, ResetTTL: time.Hour,
	}
	change := store.Change{ID: ids(now), Kind: store.ChangeBlock, Key: key, Until: now + 9000, Strikes: 2, TTL: time.Minute}
	override := store.Change{ID: ids(now), Kind: store.ChangeOverride, Key: key, Until: now + 9000, TTL: time.Minute, Details: "\x00{}"}
	s, end := openFile(t, folder, embedded.Options{})
	for _, write := range []store.Write{w, {Key: key, Remove: []store.EventID{removed}, Logs: w.Logs}} {
		if err := s.Write(t.Context(), &write); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*store.Change{&change, &override} {
		if err := s.Publish(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	q := store.Query{Key: key, Counts: true, Cell: true, ExpireAfter: now}
	for span := range store.SpanCount {
		q.Logs = append(q.Logs, store.LogQuery{Span: span, Max: 10})
	}
	want, err := s.Read(t.Context(), &q)
	if err != nil || len(want.Logs[store.SpanMonth].Events) != 2 || len(want.Counts) != 2 {
		t.Fatalf("before: %+v, %v", want, err)
	}
	for range 2 { // what was loaded is kept like what was written
		end()
		s, end = openFile(t, folder, embedded.Options{})
		got, err := s.Read(t.Context(), &q)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("after: %+v\nwant   %+v, %v", got, want, err)
		}
		changes, err := s.Changes(t.Context(), &store.ChangeQuery{Since: now})
		if err != nil || len(changes) != 2 || !slices.Contains(changes, change) || !slices.Contains(changes, override) {
			t.Errorf("changes after: %+v, want %+v and %+v, %v", changes, change, override, err)
		}
	}
	if err := s.Write(t.Context(), &store.Write{Key: key, Events: w.Events[1:2], Logs: w.Logs}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), &q); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("an event that had been removed is back: %+v, %v", got, err)
	}
	end()
}

// TestRestartKeepsALogOfAnySpan has a key's only log be of each span.
func TestRestartKeepsALogOfAnySpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for span := range store.SpanCount {
			disk, ids := new(memory), store.NewEventIDs().Next
			s := open(t, disk, embedded.Options{})
			stop := run(t, s.Run)
			appendOne(t, s, ids, span)
			stop()
			q := store.Query{Key: keysOf(1, true)[0], Logs: []store.LogQuery{{Span: span, Max: 2}}}
			got, err := open(t, disk, embedded.Options{}).Read(t.Context(), &q)
			if err != nil || len(got.Logs[0].Events) != 1 {
				t.Errorf("span %d: %+v, want an event, %v", span, got.Logs, err)
			}
		}
	})
}

// TestALogOfAnotherSpanLeavesTheDisk resets a key that is saved, and has it begin with a log of
// another span, and expire, before it is saved again.
func TestALogOfAnotherSpanLeavesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, ids := new(memory), store.NewEventIDs().Next
		s := open(t, disk, embedded.Options{})
		stop := run(t, s.Run)
		appendOne(t, s, ids, store.SpanHour)
		time.Sleep(2 * time.Second)
		if disk.len() != 1 {
			t.Fatalf("%d records of 1 are saved", disk.len())
		}
		disk.fail(errors.New("no space left"))
		reset := store.Write{Key: keysOf(1, true)[0], Reset: store.InstantOf(time.Now()), ResetTTL: time.Second}
		if err := s.Write(t.Context(), &reset); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		appendOne(t, s, ids, store.SpanDay)
		time.Sleep(3 * time.Minute)
		disk.fail(nil)
		time.Sleep(2 * time.Second)
		if disk.len() != 0 || s.Len() != 0 {
			t.Errorf("%d records are left, and %d keys", disk.len(), s.Len())
		}
		stop()
	})
}

// appendOne appends an event of now, which is kept for a minute, to the log of span of a key.
func appendOne(t *testing.T, s *embedded.Store, ids func(store.Instant) store.EventID, span store.Span) {
	t.Helper()
	now := store.InstantOf(time.Now())
	w := store.Write{
		Key:    keysOf(1, true)[0],
		Events: []store.Event{{ID: ids(now), At: now, Cost: 1}},
		Logs:   []store.LogWrite{{Span: span, TTL: time.Minute, Keep: 9}},
	}
	if err := s.Write(t.Context(), &w); err != nil {
		t.Fatal(err)
	}
}

func TestEnginesGoOnAfterARestart(t *testing.T) {
	folder := t.TempDir()
	var policies []policy.Policy
	for _, algorithm := range policy.Algorithms() {
		p := policyOf(algorithm, 10, time.Hour)
		p.Name = algorithm
		policies = append(policies, p)
	}
	for round := range int64(3) {
		store, end := openFile(t, folder, embedded.Options{})
		e := limiter.New(store, nil)
		if err := e.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			d, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "1"})
			if err != nil || d.Used != round+1 {
				t.Errorf("%s, round %d: used %d, %v", p.Name, round+1, d.Used, err)
			}
		}
		end()
	}
}

// memory is a disk in memory that fails when the test says so.
type memory struct {
	mu      sync.Mutex
	records map[string]embedded.Record
	fails   error
	saves   int // that were tried
	largest int
	saved   func(map[string]embedded.Record) // nil, or told after every save
}

func (m *memory) Load(visit func(*embedded.Record) error) error {
	for _, r := range m.records {
		if err := visit(&r); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) Save(records []embedded.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saves++
	m.largest = max(m.largest, len(records))
	if m.fails != nil {
		return m.fails
	}
	if !slices.IsSortedFunc(records, func(a, b embedded.Record) int {
		return cmp.Or(-cmp.Compare(a.Table, b.Table), bytes.Compare(a.Key, b.Key)) // "keys" before "changes"
	}) {
		return errors.New("keys are out of order")
	}
	if m.records == nil {
		m.records = make(map[string]embedded.Record)
	}
	for _, r := range records {
		if r.Value == nil {
			delete(m.records, string(r.Key))
		} else {
			m.records[string(r.Key)] = r
		}
	}
	if m.saved != nil {
		m.saved(m.records)
	}
	return nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = err
}

// tries returns how often anything was to be saved, and the most records at once, since
// it was last asked.
func (m *memory) tries() (saves, largest int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	saves, largest = m.saves, m.largest
	m.saves, m.largest = 0, 0
	return saves, largest
}

func (m *memory) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.records)
}

func open(t *testing.T, disk embedded.Disk, opts embedded.Options) *embedded.Store {
	t.Helper()
	opts.Disk = disk
	store, err := embedded.Open(&opts)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// fill adds a unit to keys from to to, which expire a minute from now.
func fill(t *testing.T, s *embedded.Store, from, to int) {
	t.Helper()
	keyer := keys.Keyer{}
	of := keyer.For(keys.KeySpace{Policy: "p"})
	for i := from; i < to; i++ {
		k := of.Of(keys.Identifier(strconv.Itoa(i)))
		if err := updateAll(t, s, store.InstantOf(time.Now().Add(time.Minute)), k); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnlyWhatChangedIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := new(memory)
		store := open(t, disk, embedded.Options{})
		stop := run(t, store.Run)
		for _, step := range []struct{ to, saves, records int }{{100, 1, 100}, {0, 0, 0}, {3, 1, 3}} {
			fill(t, store, 0, step.to)
			time.Sleep(2300 * time.Millisecond)
			if saves, records := disk.tries(); saves != step.saves || records != step.records {
				t.Errorf("%d records in %d saves, want %d in %d", records, saves, step.records, step.saves)
			}
		}
		stop()
	})
}

func TestAFailingDiskIsToldOnceAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, log := new(memory), new(bytes.Buffer)
		in := open(t, disk, embedded.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		stop := run(t, in.Run)
		fill(t, in, 0, 10)
		time.Sleep(2 * time.Second)
		disk.fail(errors.New("no space left"))
		fill(t, in, 5, 20)
		change := store.Change{ID: store.EventID{1}, TTL: time.Hour}
		if err := in.Publish(t.Context(), &change); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := strings.Count(log.String(), "no space left"); got != 1 {
			t.Errorf("told %d times:\n%s", got, log)
		}
		if s := in.Saving(); s.Failures < 8 || time.Since(s.Since) < 9*time.Second || time.Since(s.Since) > 12*time.Second {
			t.Errorf("%+v, want some failures since ten seconds", s)
		}
		disk.fail(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !strings.Contains(log.String(), "saved again") || disk.len() != 21 {
			t.Errorf("%d records of 21 are saved:\n%s", disk.len(), log)
		}
		if s := in.Saving(); s.Failures < 8 || !s.Since.IsZero() {
			t.Errorf("%+v, want none any more", s)
		}
		again := open(t, disk, embedded.Options{})
		if again.Len() != 20 {
			t.Errorf("%d keys of 20 are loaded", again.Len())
		}
		stop()
		disk.fail(errors.New("no space left"))
		fill(t, in, 0, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := in.Run(ctx); err == nil || !strings.Contains(err.Error(), "saving the last counts: no space left") {
			t.Errorf("at the end: %v", err)
		}
	})
}

// TestAFailingDiskCostsNoMoreThanTheKeys lets keys come and go while nothing can be
// saved; what has gone without having been saved leaves nothing to be removed.
func TestAFailingDiskCostsNoMoreThanTheKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &memory{fails: errors.New("no space left")}
		store := open(t, disk, embedded.Options{})
		stop := run(t, store.Run)
		for i := range 10 {
			fill(t, store, 100*i, 100*i+100)
			time.Sleep(2 * time.Minute)
		}
		disk.tries()
		time.Sleep(2 * time.Second)
		if _, records := disk.tries(); records != 0 {
			t.Errorf("%d records are to be saved of keys that are gone", records)
		}
		disk.fail(nil)
		stop()
	})
}

// TestWhatExpiredLeavesTheDisk saves keys; some expire while the process is there, and
// some of those come back and expire again before they are saved; the others expire
// while it is not there.
func TestWhatExpiredLeavesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := new(memory)
		s := open(t, disk, embedded.Options{MaxKeys: shards * 10})
		stop := run(t, s.Run)
		fill(t, s, 0, 100)
		if err := s.Publish(t.Context(), &store.Change{ID: store.EventID{1}, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if disk.len() != 101 {
			t.Fatalf("%d records of 101 are saved", disk.len())
		}
		disk.fail(errors.New("no space left"))
		time.Sleep(2 * time.Minute)
		fill(t, s, 0, 50) // they come back while the disk still has them
		time.Sleep(2 * time.Minute)
		disk.fail(nil)
		time.Sleep(2 * time.Second)
		if disk.len() != 0 {
			t.Errorf("%d records are left of what has expired", disk.len())
		}
		fill(t, s, 0, 100)
		stop()

		time.Sleep(2 * time.Minute)
		s = open(t, disk, embedded.Options{})
		if disk.len() != 100 || s.Len() != 0 {
			t.Errorf("%d records, of which %d are loaded", disk.len(), s.Len())
		}
		stop = run(t, s.Run)
		time.Sleep(2 * time.Second)
		if disk.len() != 0 {
			t.Errorf("%d records are left of what expired before the start", disk.len())
		}
		stop()
	})
}

// TestWritesOfSeveralKeysAreSavedWhole changes two keys together all the time: at no
// time does the disk have one of them ahead of the other.
func TestWritesOfSeveralKeysAreSavedWhole(t *testing.T) {
	keys := keysOf(2, false)
	disk := &memory{saved: func(records map[string]embedded.Record) {
		first, second := records[string(keys[0].Bytes())], records[string(keys[1].Bytes())]
		if !bytes.Equal(first.Value, second.Value) {
			t.Errorf("one key is saved as % x, the other as % x", first.Value, second.Value)
		}
	}}
	s := open(t, disk, embedded.Options{SyncEvery: 100 * time.Microsecond})
	stop := run(t, s.Run)
	saves, expires := 0, store.InstantOf(time.Now().Add(time.Hour))
	for deadline := time.Now().Add(10 * time.Second); saves < 300 && time.Now().Before(deadline); {
		for range 100 {
			if err := updateAll(t, s, expires, keys...); err != nil {
				t.Fatal(err)
			}
		}
		n, _ := disk.tries()
		saves += n
	}
	stop()
}

func TestRecordsThatMakeNoSense(t *testing.T) {
	disk := new(memory)
	store := open(t, disk, embedded.Options{})
	stop := run(t, store.Run)
	fill(t, store, 0, 1)
	stop()
	var record embedded.Record
	for _, record = range disk.records {
	}
	for name, test := range map[string]struct {
		key, value []byte
		want       string
	}{
		"of a later format": {record.Key, append([]byte{2}, record.Value[1:]...), "it is in format 2, of a later version"},
		"without format":    {record.Key, nil, "it is damaged"},
		"cut short":         {record.Key, record.Value[:len(record.Value)-1], "it is damaged"},
		"too long":          {record.Key, append(bytes.Clone(record.Value), 0), "it is damaged"},
		"of a short key":    {record.Key[1:], record.Value, "it is damaged"},
	} {
		disk := &memory{records: map[string]embedded.Record{"": {Table: embedded.TableKeys, Key: test.key, Value: test.value}}}
		if _, err := embedded.Open(&embedded.Options{Disk: disk}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
}

// TestTheFileStaysBounded has keys come and go; what they leave is used again.
func TestTheFileStaysBounded(t *testing.T) {
	folder, now := t.TempDir(), start
	file, err := datafile.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	store := open(t, file, embedded.Options{Now: clockAt(&now), MaxKeys: 40 * shards})
	size := func() int64 {
		info, err := os.Stat(filepath.Join(folder, datafile.Name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	keyer := keys.Keyer{}
	of := keyer.For(keys.KeySpace{Policy: "p"})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var early int64
	for round := range 30 {
		for i := range 500 {
			k := of.Of(keys.Identifier(strconv.Itoa(1000*round + i)))
			if err := updateAll(t, store, now.Add(time.Minute), k); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Run(ended); err != nil { // which saves once
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
		if round == 5 {
			early = size()
		}
	}
	if got := size(); got > 2*early {
		t.Errorf("the file has %d bytes, %d after the first rounds", got, early)
	}
}

// FuzzRecords feeds records to a store as it opens.
func FuzzRecords(f *testing.F) {
	disk := new(memory)
	s, err := embedded.Open(&embedded.Options{Disk: disk})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	id := store.EventID{1}
	w := store.Write{
		Key: keysOf(1, true)[0], Events: []store.Event{{ID: id, At: start, Cost: 1, Ends: start + 1}}, Remove: []store.EventID{{2}},
		Logs: []store.LogWrite{{Span: store.SpanDay, TTL: time.Hour, Keep: 9}}, Add: countOf(1, start+1),
		Cell: &store.CellWrite{Version: id, Value: []byte("a")},
	}
	if err := errors.Join(s.Write(ctx, &w), s.Publish(ctx, &store.Change{ID: id, TTL: time.Hour}), s.Run(ctx)); err != nil {
		f.Fatal(err)
	}
	for r := range maps.Values(disk.records) {
		f.Add(string(r.Table), r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, table string, key, value []byte) {
		disk := &memory{records: map[string]embedded.Record{"": {Table: embedded.Table(table), Key: key, Value: value}}}
		store, err := embedded.Open(&embedded.Options{Disk: disk})
		if err != nil {
			return
		}
		if err := store.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}
