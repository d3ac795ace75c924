package limiter

import (
	"reflect"
	"testing"
	"time"
)

// TestQueryAgain is the query that would be made anew, for another key and later.
func TestQueryAgain(t *testing.T) {
	p := newPlan(Policy{Name: "p", Limits: []Limit{
		{Algorithm: "sliding-log", Limit: 3, Window: time.Minute},
		{Algorithm: "sliding-log", Limit: 30, Window: 12 * time.Hour},
		{Algorithm: "sliding-tail", Limit: 300, Window: 24 * time.Hour},
		{Algorithm: "token-bucket", Limit: 3000, Window: time.Hour},
	}}, &Options{ClockTolerance: time.Second}, true)
	q := p.query(Key{sum: [KeySize]byte{1}}, fuzzNow, 1, nil)
	other := Key{sum: [KeySize]byte{2}}
	p.queryAgain(&q, other, fuzzNow+1234)
	if want := p.query(other, fuzzNow+1234, 1, nil); !reflect.DeepEqual(q, want) {
		t.Errorf("%+v, want %+v", q, want)
	}
}
