package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// How long requests in flight may take after a signal: longer than any decision, and with
// time left of ten seconds to take back what was not admitted. Where there is a proxy,
// applications behind it may still ask for what they need to answer: its requests come
// first, and then all others.
const (
	drainTimeout        = 5 * time.Second
	drainTimeoutOfProxy = 4 * time.Second
	drainTimeoutBehind  = 2 * time.Second
)

// drain returns how long requests in flight may take that are not the proxy's.
func (s *settings) drain() time.Duration {
	if s.proxy.upstream != nil {
		return drainTimeoutBehind
	}
	return drainTimeout
}

func newServe(environ []string) *cobra.Command {
	s := new(settings)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve rate limits over HTTP",
		Long: "Serve rate limits over HTTP, until SIGTERM or SIGINT.\n\n" +
			"SIGHUP, or a change of a file, reloads the policies, who may ask (--auth-file) and the\n" +
			"certificates of TLS; a file with mistakes is refused and logged, and what is in force stays.\n\n" +
			"An address that other machines reach needs --auth-file or --tls-client-ca-file, or else\n" +
			"--insecure-no-auth.\n\n" +
			"Every flag has an environment variable (--log-level: RATELIMITD_LOG_LEVEL) and a key in the\n" +
			"--config file (log-level:). A flag beats the environment, which beats the file.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.load(cmd, environ)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr(), log)
		},
	}
	s.addCommonFlags(cmd.Flags())
	s.addServeFlags(cmd.Flags())
	s.addCassandraFlags(cmd.Flags())
	return cmd
}

// serve puts the service together and runs it until ctx ends.
func serve(ctx context.Context, s *settings, stdout, stderr io.Writer, log *slog.Logger) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	p := &parts{settings: s, log: log}
	p.registry, p.measured = newMetrics()
	p.bounds = newBoundSeries(p.registry)
	p.source = &policySource{metrics: p.measured, log: log}
	policies, err := p.source.load(s.policies)
	if err != nil {
		return err
	}
	if err := p.secure(stderr); err != nil {
		return err
	}
	if err := p.decide(ctx, policies); err != nil {
		return err
	}
	defer p.store.close()
	servers, err := p.listen(ctx, stdout)
	if err != nil {
		return err
	}
	reloads := together(p.source.run, p.guard.run, onHangup(hangup, p.audit.reload, p.source.reload, p.guard.reload))
	engine := p.source.engine
	err = inOrder(ctx, servers, reloads, p.peers.run(engine), engine.Run, p.store.run, p.measured.Run, spareGarbage)
	if err != nil {
		return failure{err}
	}
	log.Info("stopped")
	return nil
}

// parts are what serve puts together, in the order in which they come to be.
type parts struct {
	settings *settings
	log      *slog.Logger

	registry *prometheus.Registry
	measured *metrics.Metrics
	bounds   *boundSeries
	source   *policySource
	audit    *auditLog
	guard    *security
	store    *backend
	peers    *peers
}

// secure opens the audit log and reads who may ask, and refuses addresses that are open to
// everybody.
func (p *parts) secure(stderr io.Writer) (err error) {
	if p.audit, err = openAuditLog(p.settings.auditLog, stderr, p.log); err != nil {
		return failure{err}
	}
	p.source.audit = p.audit
	if p.guard, err = openSecurity(&p.settings.security, p.audit, p.log); err != nil {
		return err
	}
	return mayListen(p.guard, p.settings)
}

// decide opens the store and makes the engine, with policies in force. The caller closes
// the store, unless there is an error.
func (p *parts) decide(ctx context.Context, policies policyfile.File) error {
	s := p.settings
	hashKeys, err := readHashKeys(s.hashKeyFile, p.log)
	if err != nil {
		return err
	}
	if p.store, err = openStore(ctx, s, policies.Policies, p.measured, p.log); err != nil {
		return err
	}
	p.log.Info("serving", "version", version(), "store", s.store, "namespace", s.namespace)
	if p.peers, err = openPeers(ctx, s, p.store, p.log); err != nil {
		p.store.close()
		return err
	}
	p.source.engine, p.source.refuses = newEngine(s, p.store, p.peers.owners(), hashKeys, p.measured), p.store.canPromise
	p.registry.MustRegister(p.peers.metrics()...)
	if p.store.onMove != nil {
		p.store.onMove(p.source.engine.MoveTo)
	}
	p.source.envoy = newEnvoy(s, p.source.engine, p.guard, p.registry, p.log)
	if err := p.source.set(policies); err != nil {
		p.store.close()
		return err
	}
	if p.store.saving != nil {
		p.registry.MustRegister(metrics.NewSaving(now, p.store.saving))
	}
	if !p.source.engine.InMemory() {
		p.registry.MustRegister(metrics.NewBehind(p.source.engine.Behind))
	}
	if err := p.source.engine.CatchUp(ctx); err != nil && !errors.Is(err, limiter.ErrNotConnected) {
		p.log.Warn("overrides and blocks that were made before are not known yet", "error", err)
	}
	return nil
}

// listen opens the listeners of all servers, and returns what serves them.
func (p *parts) listen(ctx context.Context, stdout io.Writer) (stage, error) {
	s, engine := p.settings, p.source.engine
	handler := api.New(engine, &api.Options{
		Logger: p.log, Headers: s.headers, Ready: p.store.ready, Warnings: p.store.warnings, Reached: p.bounds.reached,
		Metrics: metrics.Handler(p.registry), Observe: p.measured.ObserveHTTP, Overshoot: overshootOf(p.measured),
		Keyring:     p.guard.keyring,
		Hosts:       &s.security.hosts,
		Audit:       p.audit.Log,
		ForwardAuth: s.forwardAuth,
	})
	server, err := listen(ctx, s, p.guard, handler, stdout, p.log, p.bounds)
	if err != nil {
		return nil, failure{err}
	}
	serveEnvoy, err := listenEnvoy(ctx, p, p.source.envoy, stdout)
	if err != nil {
		return nil, failure{errors.Join(err, server.listener.Close())}
	}
	serveProxy, err := p.listenProxy(ctx, stdout)
	if err != nil {
		return nil, errors.Join(err, server.listener.Close())
	}
	return func(ctx context.Context) error {
		return inOrder(ctx, serveProxy, together(server.run, serveEnvoy))
	}, nil
}

// mayListen refuses addresses that everybody could reach and ask for everything.
func mayListen(guard *security, s *settings) error {
	if err := guard.mayListen("--listen", s.listen); err != nil || s.envoyListen == "" {
		return err
	}
	return guard.mayListen("--envoy-listen", s.envoyListen)
}

// load reads the file of policies, or the examples when file is empty.
func (p *policySource) load(file string) (policyfile.File, error) {
	if file == "" {
		return loadPolicies("")
	}
	p.watcher = policyfile.NewWatcher(file)
	return p.watcher.Load()
}

func newEngine(
	s *settings, store *backend, owners limiter.Owners, hashKeys []limiter.HashKey, observer limiter.Observer,
) *limiter.Engine {
	keyer, alsoRead := keyers(s.namespace, hashKeys)
	return limiter.New(store.store, &limiter.Options{
		Keyer:          keyer,
		AlsoRead:       alsoRead,
		Consistency:    s.levels(),
		Serial:         s.cassandra.serialConsistency,
		Datacenter:     store.datacenter,
		ClockTolerance: s.clockTolerance,
		StoreTimeout:   s.storeTimeout,
		Now:            now,
		Skewed:         store.skewed,
		Local:          store.local,
		SyncInterval:   s.syncInterval,
		Feed:           store.feed,
		Observer:       observer,
		Identifiers:    identifier.Reader,
		Owners:         owners,
	})
}

// newMetrics returns a registry with the process's own metrics, and those that the
// other parts count with.
func newMetrics() (*prometheus.Registry, *metrics.Metrics) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry, metrics.New(registry, now)
}

// webServer is what http.Server and http1.Server have in common.
type webServer interface {
	Serve(listener net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// httpServer is a server that listens already.
type httpServer struct {
	webServer
	connections *api.Connections // below listener
	listener    net.Listener
	drain       time.Duration // for requests in flight
	log         *slog.Logger
}

// listen opens address and says so on stdout, in the first line that is there.
func listen(
	ctx context.Context, s *settings, guard *security, handler *api.Server, stdout io.Writer, log *slog.Logger, bounds *boundSeries,
) (*httpServer, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(stdout, "listening on %s://%s\n", guard.scheme(), listener.Addr()); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := api.NewHTTPServer(handler)
	server.ErrorLog = serverLog(log, slog.LevelWarn)
	connections := api.LimitConnections(server.Server, listener, s.connections, bounds.reached)
	bounds.open(connections.Len)
	guard.onNewAuthorities(renewer(server.Server))
	return &httpServer{server, connections, guard.secure(connections, "http/1.1"), s.drain(), log}, nil
}

// run answers requests until ctx ends, and then those that are in flight or come by connections
// whose clients do not know yet that they end.
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
		s.log.Info("stopping: answering what is in flight")
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
