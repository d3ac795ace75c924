package serve

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	grpctls "google.golang.org/grpc/credentials"

	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/grpcbound"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// newEnvoy returns a server for Envoy; nil without --envoy-listen.
func (s *service) newEnvoy() *envoy.Server {
	if s.settings.EnvoyListen == "" {
		return nil
	}
	measured := metrics.NewEnvoy(s.registry)
	return envoy.New(s.engine, &envoy.Options{
		Logger: s.log, Now: s.process.Now, Keyring: s.guard.keyring, Observe: measured.ObserveRequest, Refused: s.audit.refused,
		Tracer:     s.telemetry.Tracer(),
		Descriptor: func(domain string, became envoy.Outcome) { measured.ObserveDescriptor(domain, string(became)) },
	})
}

// listenEnvoy opens the address for Envoy and prints it to stdout. The stage that it returns serves Envoy, or does
// nothing without --envoy-listen.
func (s *service) listenEnvoy(ctx context.Context) (stage, error) {
	if s.envoy == nil {
		return untilDone, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.settings.EnvoyListen)
	if err != nil {
		return nil, err
	}
	scheme, options := "grpc", []grpc.ServerOption(nil)
	if config := s.guard.tlsConfig("h2"); config != nil {
		scheme, options = "grpcs", append(options, grpc.Creds(grpctls.NewTLS(config)))
	}
	if _, err := fmt.Fprintf(s.stdout, "listening for Envoy on %s://%s\n", scheme, listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	var serving *envoy.Listener
	turnedAway := metrics.NewEnvoyConnections(s.registry, func() int { return serving.Open() }, grpcbound.Bounds)
	serving = envoy.NewListener(s.envoy, listener, envoy.ListenerOptions{
		Connections: s.room.connections, Reached: turnedAway, Drain: s.drain(), Ready: s.store.ready, GRPC: options,
	})
	return serving.Run, nil
}
