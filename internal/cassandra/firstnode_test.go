package cassandra_test

import (
	"strconv"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Tokens are those that Cassandra computes.
func TestTokens(t *testing.T) {
	s := newStore(t, commonConfig(t))
	keyer := keys.Keyer{Namespace: t.Name()}
	all := keyer.For(keys.KeySpace{Policy: "p"})
	for i := range 100 {
		key := all.Of(keys.Identifier(strconv.Itoa(i)))
		w := store.Write{
			Key: key, Level: policy.LevelOne, Logs: []store.LogWrite{{Span: store.SpanHour, TTL: 60_000_000_000}},
			Events: []store.Event{{ID: store.NewEventIDs().Next(store.Instant(1_772_452_800_000)), Cost: 1}},
		}
		if err := s.Write(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
		var want int64
		if err := s.Ask(&want, "SELECT token(key) FROM events_hour WHERE key = ?", key.Bytes()); err != nil {
			t.Fatal(err)
		}
		if got := cassandra.TokenOf(key.Bytes()); got != want {
			t.Fatalf("token %d, Cassandra says %d", got, want)
		}
	}
}
