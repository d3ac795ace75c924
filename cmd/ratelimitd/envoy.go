package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	grpctls "google.golang.org/grpc/credentials"

	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// newEnvoy returns what answers Envoy, nil if it is to be served nowhere.
func newEnvoy(s *settings, engine *limiter.Engine, guard *security, reg prometheus.Registerer, log *slog.Logger) *envoy.Server {
	if s.envoyListen == "" {
		return nil
	}
	measured := metrics.NewEnvoy(reg)
	return envoy.New(engine, &envoy.Options{
		Logger: log, Now: now, Keyring: guard.keyring, Observe: measured.ObserveRequest, Refused: guard.audit.refused,
		Descriptor: func(domain string, became envoy.Outcome) { measured.ObserveDescriptor(domain, string(became)) },
	})
}

// listenEnvoy opens the address for Envoy and says so on stdout. It returns the stage
// that serves it, which does nothing where server is nil.
func listenEnvoy(ctx context.Context, p *parts, server *envoy.Server, stdout io.Writer) (stage, error) {
	s, guard := p.settings, p.guard
	if server == nil {
		return untilDone, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.envoyListen)
	if err != nil {
		return nil, err
	}
	scheme, options := "grpc", []grpc.ServerOption(nil)
	if config := guard.tlsConfig("h2"); config != nil {
		scheme, options = "grpcs", append(options, grpc.Creds(grpctls.NewTLS(config)))
	}
	if _, err := fmt.Fprintf(stdout, "listening for Envoy on %s://%s\n", scheme, listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	var serving *envoy.Listener
	measured := metrics.NewEnvoyConnections(p.registry, func() int { return serving.Open() }, envoy.Bounds)
	serving = envoy.NewListener(server, listener, envoy.ListenerOptions{
		Connections: s.connections, Reached: measured.TurnAway, Drain: s.drain(), Ready: p.store.ready, GRPC: options,
	})
	return serving.Run, nil
}
