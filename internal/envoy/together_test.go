package envoy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// together maps path and tenant to limits that are decided together.
const together = `
policies:
  - {name: few, limits: [{name: few, algorithm: fixed-window, limit: 1, window: 1h}]}
  - {name: many, limits: [{name: many, algorithm: fixed-window, limit: 20, window: 1h}]}
  - {name: address, normalize: ip, limits: [{name: address, algorithm: fixed-window, limit: 20, window: 1h}]}
  - {name: shadow, mode: shadow, normalize: ip, limits: [{name: shadow, algorithm: fixed-window, limit: 20, window: 1h}]}
  - {name: network, limits: [{name: network, algorithm: fixed-window, limit: 1, window: 1h}]}
  - {name: deriving, normalize: ip, limits: [{name: deriving, algorithm: fixed-window, limit: 20, window: 1h}],
     derive: [{policy: network, from: {ip-prefix: 24}}]}
envoy:
  domains:
    - domain: edge
      together: true
      descriptors:
        - {key: few, policy: few}
        - {key: many, policy: many}
        - {key: address, policy: address, identifier: address}
        - {key: shadow, policy: shadow, identifier: shadow}
        - {key: deriving, policy: deriving, identifier: deriving}
`

// TestADenialUsesUpNothing holds that, of two limits, one keeps its units if the other is full.
func TestADenialUsesUpNothing(t *testing.T) {
	f := newFront(t, together, settings{})
	both := request(descriptor("few=a"), descriptor("many=a"))
	f.wants(f.send(both), "OK; OK 0 of 1/HOUR few 3585s; OK 19 of 20/HOUR many 3585s")
	for range 3 {
		f.wants(f.send(both), "OVER_LIMIT; OVER_LIMIT 0 of 1/HOUR few 3585s; OK 19 of 20/HOUR many 3585s")
	}
	f.wants(f.ask("many=a"), "OK; OK 18 of 20/HOUR many 3585s")

	same := request(descriptor("many=b"), descriptor("many=b"), hits(descriptor("few=b"), 0))
	f.wants(f.send(same), "OK; OK 18 of 20/HOUR many 3585s; OK 18 of 20/HOUR many 3585s; OK 1 of 1/HOUR few 0s")
	f.wants(f.send(request(hits(descriptor("many=b"), 10), hits(descriptor("many=b"), 9))),
		"OVER_LIMIT; OVER_LIMIT 18 of 20/HOUR many 3585s; OVER_LIMIT 18 of 20/HOUR many 3585s")
	f.wants(f.send(request(hits(descriptor("many=b"), 9), hits(descriptor("many=b"), 9))),
		"OK; OK 0 of 20/HOUR many 3585s; OK 0 of 20/HOUR many 3585s")
}

// TestWhatCannotBeDecidedUsesUpNothing holds the same for a cost that can never fit, and for an identifier that can't
// be read. In mode shadow, the others count.
func TestWhatCannotBeDecidedUsesUpNothing(t *testing.T) {
	f := newFront(t, together, settings{})
	for _, odd := range []string{"address=nowhere", "few=a"} {
		r := f.send(request(hits(descriptor(odd), 2), descriptor("many=a")))
		if got := r.GetOverallCode().String() + " " + r.GetStatuses()[0].GetCode().String(); got != "OVER_LIMIT OVER_LIMIT" {
			t.Errorf("%s: %s", odd, got)
		}
	}
	f.wants(f.ask("many=a"), "OK; OK 19 of 20/HOUR many 3585s")
	f.send(request(descriptor("shadow=nowhere"), descriptor("many=a")))
	f.wants(f.ask("many=a"), "OK; OK 17 of 20/HOUR many 3585s")
}

// TestWhatIsDerivedDeniesToo holds that a full network denies its address, which then counts nothing.
func TestWhatIsDerivedDeniesToo(t *testing.T) {
	f := newFront(t, together, settings{})
	for i, want := range []string{"OK", "OVER_LIMIT", "OVER_LIMIT"} {
		r := f.send(request(descriptor("many=a"), descriptor(fmt.Sprintf("deriving=192.0.2.%d", i))))
		if got := r.GetOverallCode().String(); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	f.wants(f.ask("many=a"), "OK; OK 18 of 20/HOUR many 3585s")
}

// TestTooManyTogether holds that too many descriptors together are refused.
func TestTooManyTogether(t *testing.T) {
	f := newFront(t, together, settings{})
	r := request()
	for i := range 17 {
		r.Descriptors = append(r.Descriptors, descriptor(fmt.Sprintf("many=%d", i)))
	}
	_, err := f.client.ShouldRateLimit(context.Background(), r)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "17 of them stand or fall together: use at most 16") {
		t.Errorf("got %v", err)
	}
}
