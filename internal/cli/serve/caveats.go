package serve

import (
	"context"
	"log/slog"
	"slices"
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

// watchCaveats tells of a cluster that may forget what it acknowledged, at the start and daily, until
// ctx ends. It does not warn of accepted ones.
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

// lookForCaveats looks once, and returns when to look again.
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
		log.Info("whether the cluster keeps what it promises is not known", "error", err)
		return caveatsAgain
	}
	return caveatsEvery
}
