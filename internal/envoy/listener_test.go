package envoy_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/envoy"
)

var services = []string{"", "envoy.service.ratelimit.v3.RateLimitService", "kuadrant.service.ratelimit.v1.RateLimitService", "ratelimit"}

// TestHealthFollowsReadiness holds that the health of all services is the readiness.
func TestHealthFollowsReadiness(t *testing.T) {
	var unready atomic.Bool
	f := newFront(t, edge, settings{listen: envoy.ListenerOptions{Ready: func(context.Context) error {
		if unready.Load() {
			return errors.New("the store is away")
		}
		return nil
	}}})
	client := healthpb.NewHealthClient(f.conn)
	is := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range services {
			eventually(t, service+" is "+want.String(), func() bool {
				got, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{Service: service})
				return err == nil && got.GetStatus() == want
			})
		}
	}
	is(healthpb.HealthCheckResponse_SERVING)
	unready.Store(true)
	is(healthpb.HealthCheckResponse_NOT_SERVING)
	unready.Store(false)
	is(healthpb.HealthCheckResponse_SERVING)
	_, err := client.Check(context.Background(), &healthpb.HealthCheckRequest{Service: "another"})
	wantCode(t, err, codes.NotFound, "")
	if requests, _ := f.seen(); len(requests) != 0 {
		t.Errorf("health was observed as %q", requests)
	}
}

// TestStopAnswersWhatIsUnderWay holds that a request in progress is answered after a stop, that later ones are refused,
// and that watchers of health do not delay it.
func TestStopAnswersWhatIsUnderWay(t *testing.T) {
	store := newShaky()
	f := newFront(t, byStoreError, settings{store: store, timeout: 5 * time.Minute})
	watch, err := healthpb.NewHealthClient(f.conn).Watch(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	store.waits.Store(true)
	answered := make(chan *rls.RateLimitResponse, 1)
	go func() { answered <- f.send(request(descriptor("deny=x"))) }()
	eventually(t, "the store is asked", func() bool { return store.calls.Load() > 0 })
	f.stop()
	for err == nil {
		_, err = watch.Recv() // "not serving" may come first
	}
	close(store.release)
	f.wants(<-answered, "OK; OK 1 of 2/MINUTE deny 45s")
	if err := <-f.ended; err != nil {
		t.Error(err)
	}
	f.ended <- nil // for the cleanup
	_, err = f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x")))
	wantCode(t, err, codes.Unavailable, "")
}

// TestStopCutsOffWhatTakesTooLong holds that a stop ends in time.
func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	store := newShaky()
	f := newFront(t, byStoreError, settings{store: store, timeout: 5 * time.Minute, drain: 10 * time.Millisecond})
	store.waits.Store(true)
	defer close(store.release)
	answered := make(chan error, 1)
	go func() {
		_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x")))
		answered <- err
	}()
	eventually(t, "the store is asked", func() bool { return store.calls.Load() > 0 })
	f.stop()
	wantCode(t, <-answered, codes.Unavailable, "")
}
