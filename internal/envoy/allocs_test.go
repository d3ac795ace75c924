//go:build !race

package envoy

import (
	"context"
	"testing"
)

// TestRequestsHardlyAllocate holds that a request only allocates the response, its list of statuses and their parts,
// and for each descriptor its identifier and the limits' verdicts. The race detector drops pooled memory.
func TestRequestsHardlyAllocate(t *testing.T) {
	s := newLocal(t)
	for keys, most := range map[string]float64{"a": 5, "abc": 9, "d": 3} {
		r := requestOf()
		for _, key := range keys {
			r.Descriptors = append(r.Descriptors, requestOf(string(key)).Descriptors...)
		}
		ask := func() {
			if _, err := s.ShouldRateLimit(context.Background(), r); err != nil {
				t.Fatal(err)
			}
		}
		ask() // the first one makes what the others find
		if got := testing.AllocsPerRun(100, ask); got > most {
			t.Errorf("%s: %.1f allocations, want %.1f at most", keys, got, most)
		}
	}
}
