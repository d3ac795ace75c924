package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// How often it is looked whether the cluster can keep what it promises, and how soon again where that
// could not be found out.
const (
	caveatsEvery = 24 * time.Hour
	caveatsAgain = time.Minute
	caveatsSoon  = time.Second // until the cluster is reached
	caveatsAsk   = 30 * time.Second
)

// watchCaveats warns of a cluster that may forget what it acknowledged, at the start and daily, until
// ctx ends.
func watchCaveats(ctx context.Context, store *cassandra.Later, measured *metrics.Metrics, log *slog.Logger) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if !store.Connected() {
			timer.Reset(caveatsSoon)
			continue
		}
		timer.Reset(lookForCaveats(ctx, store, measured, log))
	}
}

// lookForCaveats looks once, and returns when to look again.
func lookForCaveats(
	ctx context.Context, store *cassandra.Later, measured *metrics.Metrics, log *slog.Logger,
) (again time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, caveatsAsk)
	defer cancel()
	found, err := store.Caveats(ctx)
	for caveat, sentence := range found {
		if measured.SetCaveat(string(caveat), sentence != ""); sentence != "" {
			log.Warn("cluster: "+sentence, "caveat", caveat)
		}
	}
	if err != nil {
		log.Info("whether the cluster keeps what it promises is not known", "error", err)
		return caveatsAgain
	}
	return caveatsEvery
}
