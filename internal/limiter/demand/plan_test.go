package demand

import (
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestQueryAgain is the query that would be made anew, for another key and later.
func TestQueryAgain(t *testing.T) {
	p := NewPlan(policy.Policy{Name: "p", Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 3, Window: time.Minute},
		{Algorithm: "sliding-log", Limit: 30, Window: 12 * time.Hour},
		{Algorithm: "sliding-tail", Limit: 300, Window: 24 * time.Hour},
		{Algorithm: "token-bucket", Limit: 3000, Window: time.Hour},
	}}, Settings{ClockTolerance: time.Second}.WithDefaults(), true)
	const now store.Instant = 1_772_366_400_000
	q := p.Query(store.KeyFrom([store.KeySize]byte{1}), now, 1, nil)
	other := store.KeyFrom([store.KeySize]byte{2})
	p.QueryAgain(&q, other, now+1234)
	if want := p.Query(other, now+1234, 1, nil); !reflect.DeepEqual(q, want) {
		t.Errorf("%+v, want %+v", q, want)
	}
}
