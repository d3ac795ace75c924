package cassandra

import (
	"testing"
	"time"
)

// A pass is finished when every slice of the ring was visited.
func TestSweepsSayWhenAPassIsFinished(t *testing.T) {
	now := time.UnixMilli(1_772_452_800_000)
	store := &Store{}
	store.sweeper.config = &Config{Now: func() time.Time { return now }}
	for next := 1; next < sweepSlices; next++ {
		store.sweeper.swept(next)
	}
	if !store.Sweeps().Finished.IsZero() {
		t.Error("finished before the last slice")
	}
	store.sweeper.swept(sweepSlices)
	if got := store.Sweeps(); !got.Finished.Equal(now) || got.Progress != 0 {
		t.Errorf("after a whole pass: %+v", got)
	}
}
