package cas

import (
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A cell tells of the latest version of each of many processes, of the latest ones of them all,
// and of no more than it may; not of processes that wrote long ago.
func TestVersionsOfEachProcess(t *testing.T) {
	const now = store.Instant(1 << 40)
	var all versions
	add := func(ids *store.EventIDs, age time.Duration) store.EventID {
		id := ids.Next(now.Add(-age))
		all = append(all, id[:]...)
		return id
	}
	busy, waits, gone := store.NewEventIDs(), store.NewEventIDs(), store.NewEventIDs()
	for i := range 60 {
		add(busy, time.Duration(i)*20*time.Millisecond)
	}
	last := add(waits, time.Minute)
	before := add(waits, 2*time.Minute)
	left := add(gone, 2*time.Hour)
	kept := all.ofEach(all.before(now.Add(-time.Second)), now.Add(-keptInDoubt))
	told := Chain{versions: kept}
	if n := kept.Len(); n != keptVersions/2+1 || !slices.Equal(kept[:versionSize], all[:versionSize]) {
		t.Errorf("%d versions are kept", n)
	}
	if !told.has(last) || told.has(before) || told.has(left) {
		t.Errorf("of who waits: the last %v, the one before %v; of who is gone %v", told.has(last), told.has(before), told.has(left))
	}
	for range 2 * keptVersions {
		add(store.NewEventIDs(), time.Minute)
	}
	if n := all.ofEach(all[:versionSize], now.Add(-keptInDoubt)).Len(); n != keptVersions-1 {
		t.Errorf("%d versions of many processes are kept", n)
	}
}
