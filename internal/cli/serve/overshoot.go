package serve

import (
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// overshootOf returns what tells the api how far callers went past a policy's limits.
func overshootOf(measured *metrics.Metrics) func(policy string, top int) (api.Overshoot, bool) {
	return func(policy string, top int) (api.Overshoot, bool) {
		r, known := measured.Overshoot(policy, top)
		if !known {
			return api.Overshoot{}, false
		}
		o := api.Overshoot{
			Since: r.Since, Attempts: r.Attempts, Units: r.Units, Episodes: r.Episodes, KeysOver: r.Open, Dropped: r.Dropped,
			PerEpisode: spreadOf(&r.PerEpisode), TimesLimit: spreadOf(&r.Times), WorstSince: r.WorstSince,
		}
		for _, w := range r.Worst {
			o.Worst = append(o.Worst, api.WorstKey(w))
		}
		return o, true
	}
}

func spreadOf(s *overshoot.Spread) api.Spread {
	as := api.Spread{Count: s.Count, P50: s.P50, P90: s.P90, P99: s.P99, Max: s.Max}
	for _, b := range s.Buckets {
		as.Buckets = append(as.Buckets, api.SpreadBucket(b))
	}
	return as
}
