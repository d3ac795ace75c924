package peer

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// TestShadowsAreTold asks a peer what it counted of a policy's shadows, over a real connection, before it is told how to
// say that and after.
func TestShadowsAreTold(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(listener, plain, nil, new(views), nil)
	if empty, err := server.Shadow(t.Context(), nil); err != nil || len(empty.GetReport()) > 0 {
		t.Errorf("%v, %v", empty, err)
	}
	server.Shadows = func(policy string) []byte { return []byte("of " + policy) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	pool := NewPool(new(one), plain, slog.New(slog.DiscardHandler))
	there := cluster.Member{ID: "there", Address: listener.Addr().String()}
	if report, err := pool.Shadow(ctx, there, "p"); err != nil || string(report) != "of p" {
		t.Errorf("%q, %v", report, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := pool.Shadow(t.Context(), there, "p"); err == nil {
		t.Error("a peer that is gone has answered")
	}
}
