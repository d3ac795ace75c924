package serve

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// Times of the check that the cluster can keep its promises.
const (
	caveatsEvery = 24 * time.Hour // after a check
	caveatsAgain = time.Minute    // after a check that failed
	caveatsSoon  = time.Second    // until the cluster is reached
	caveatsAsk   = 30 * time.Second
)

// watchCaveats checks at the start and daily, until ctx ends, whether the cluster may forget writes that it
// acknowledged, and logs why. Accepted caveats are logged without a warning.
func watchCaveats(
	ctx context.Context, store *cassandra.Later, accepted []cassandra.Caveat, measured *metrics.Metrics, log *slog.Logger,
) error {
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
		timer.Reset(lookForCaveats(ctx, store, accepted, measured, log))
	}
}

// lookForCaveats checks once, and returns the time until the next check.
func lookForCaveats(
	ctx context.Context, store *cassandra.Later, accepted []cassandra.Caveat, measured *metrics.Metrics, log *slog.Logger,
) (again time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, caveatsAsk)
	defer cancel()
	found, err := store.Caveats(ctx)
	for caveat, sentence := range found {
		isAccepted, level := slices.Contains(accepted, caveat), slog.LevelWarn
		if isAccepted {
			level = slog.LevelInfo
		}
		if measured.SetCaveat(string(caveat), isAccepted, sentence != ""); sentence != "" {
			log.Log(ctx, level, "cluster: "+sentence, "caveat", caveat, "accepted", isAccepted)
		}
	}
	if err != nil {
		log.Info("cannot check whether the cluster keeps its promises", "error", err)
		return caveatsAgain
	}
	return caveatsEvery
}
