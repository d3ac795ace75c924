package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/http1"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// listenHTTP opens the address of the API and prints it to stdout, as the first line.
func (s *service) listenHTTP(ctx context.Context) (*httpServer, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.settings.Listen)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(s.stdout, "listening on %s://%s\n", s.guard.scheme(), listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := api.NewHTTPServer(s.newAPI())
	server.ErrorLog = s.serverLog(slog.LevelWarn)
	limited := s.limit(server, listener)
	s.guard.renew = renewer(server)
	return &httpServer{s.readBy(server), limited, secured(limited, s.guard.tlsConfig("http/1.1")), s.drain(), s.log}, nil
}

// limit bounds the open connections of server.
func (s *service) limit(server *http.Server, listener net.Listener) *connections.Listener {
	limited := connections.Limit(server, listener, s.room.connections, s.reached)
	s.listeners = append(s.listeners, limited)
	return limited
}

// newAPI returns a server of the API.
func (s *service) newAPI() *api.Server {
	given := s.settings
	return api.New(s.engine, &api.Options{
		Logger: s.log, Headers: given.Headers, Ready: s.ready, Warnings: s.warnings, Reached: s.reached,
		Metrics: metrics.Handler(s.registry), Observe: s.measured.ObserveHTTP, Overshoot: s.overshootOf, UI: s.apiUI(),
		Shadow:      s.shadowOf,
		Keyring:     s.guard.keyring,
		Hosts:       &given.Security.Hosts,
		Audit:       s.audit.Log,
		Policies:    versions{s.source},
		ForwardAuth: given.ForwardAuth,
		Tracer:      s.telemetry.Tracer(),
	})
}

// readBy returns server with the reader of requests that the settings name.
func (s *service) readBy(server *http.Server) webServer {
	if s.settings.HTTPServer == settings.HTTPStd {
		return server
	}
	return &http1.Server{Server: server}
}

// webServer is implemented by http.Server and http1.Server.
type webServer interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// httpServer is a server that listens already.
type httpServer struct {
	webServer
	connections *connections.Listener // below listener
	listener    net.Listener
	drain       time.Duration // for requests in flight
	log         *slog.Logger
}

// run answers requests until ctx ends, and then requests in flight and those on connections whose clients have not yet
// seen that they close.
func (s *httpServer) run(ctx context.Context) error {
	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-failed.Done()
		s.log.Info("stopping: answering requests in flight")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
		defer cancel()
		s.connections.Drain(ctx)
		if err := s.Shutdown(ctx); err != nil {
			s.log.Warn("requests were cut off", "after", s.drain)
			return s.Close()
		}
		return nil
	})
	return g.Wait()
}
