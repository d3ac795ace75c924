package peer

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// TestReports asks a peer what it counted, over a real connection, before it is told how to say that and after.
func TestReports(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(listener, plain, nil, new(views), nil)
	if empty, err := server.Report(t.Context(), nil); err != nil || len(empty.GetReport()) > 0 {
		t.Errorf("%v, %v", empty, err)
	}
	server.Reports = func(question []byte) []byte { return append([]byte("of "), question...) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	pool := NewPool(new(one), plain, slog.New(slog.DiscardHandler))
	there := cluster.Member{ID: "there", Address: listener.Addr().String()}
	if report, err := pool.Report(ctx, there, []byte("p")); err != nil || string(report) != "of p" {
		t.Errorf("%q, %v", report, err)
	}
	if report, err := pool.Report(ctx, there, make([]byte, maxQuestion+1)); err != nil || len(report) > 0 {
		t.Errorf("a question that is too long: %d bytes, %v", len(report), err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := pool.Report(t.Context(), there, []byte("p")); err == nil {
		t.Error("a peer that is gone has answered")
	}
}
