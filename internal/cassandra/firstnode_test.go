package cassandra_test

import (
	"strconv"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Tokens are those that Cassandra computes.
func TestTokens(t *testing.T) {
	store := newStore(t, newConfig(t))
	keyer := limiter.Keyer{Namespace: t.Name()}
	keys := keyer.For(limiter.KeySpace{Policy: "p"})
	for i := range 100 {
		key := keys.Of(limiter.Identifier(strconv.Itoa(i)))
		w := limiter.Write{
			Key: key, Level: limiter.LevelOne, Logs: []limiter.LogWrite{{Span: limiter.SpanHour, TTL: 60_000_000_000}},
			Events: []limiter.Event{{ID: limiter.NewEventIDs()(limiter.Instant(1_772_452_800_000)), Cost: 1}},
		}
		if err := store.Write(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
		var want int64
		if err := store.Ask(&want, "SELECT token(key) FROM events_hour WHERE key = ?", key.Bytes()); err != nil {
			t.Fatal(err)
		}
		if got := cassandra.TokenOf(key.Bytes()); got != want {
			t.Fatalf("token %d, Cassandra says %d", got, want)
		}
	}
}
