package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
	"github.com/ratelimitd/ratelimitd/internal/shadow"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/otlp"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// service has the parts of a service, in the order in which they are made.
type service struct {
	process  *command.Process
	settings *settings.Settings
	stdout   io.Writer // for the addresses that it listens on
	log      *slog.Logger

	registry  *prometheus.Registry
	measured  *metrics.Metrics
	shadows   *shadow.Table
	room      room
	listeners []*connections.Listener // of HTTP; none are added once metrics are served
	reached   func(connections.Bound) // counts a connection or request that a bound of memory turned away
	telemetry *otlp.Exporter          // nil: neither traces nor metrics are sent

	ui     *ui.UI // nil: there is no live page
	audit  *auditLog
	guard  *security
	events eventSource

	store  *backend
	peers  *peers
	engine *limiter.Engine
	agreed *agreement.Agreement // on settings; nil: there are no others
	envoy  *envoy.Server        // nil: it is served nowhere
	source *policySource
}

// serve makes a service and runs it until the context of cmd ends.
func serve(cmd *cobra.Command, process *command.Process, given *settings.Settings, log *slog.Logger) error {
	ctx := cmd.Context()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	s := &service{process: process, settings: given, stdout: cmd.OutOrStdout(), log: log}
	s.measure()
	s.makeRoom(openFiles())
	if err := s.follow(ctx); err != nil {
		return err
	}
	watcher, policies, err := readPolicies(given.Policies)
	if err != nil {
		return err
	}
	if err := s.secure(cmd.ErrOrStderr()); err != nil {
		return err
	}
	if err := s.openEvents(); err != nil {
		return err
	}
	options, err := given.EngineOptions(log)
	if err != nil {
		return err
	}
	if s.store, err = s.openStore(ctx, policies.Policies); err != nil {
		return err
	}
	defer s.store.close()
	if err := s.decide(ctx, options); err != nil {
		return err
	}
	if err := s.putInForce(ctx, watcher, policies); err != nil {
		return err
	}
	if err := s.agree(ctx, options); err != nil {
		return err
	}
	s.openUI()
	servers, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.notify()
	return s.run(ctx, servers, hangup)
}

// measure makes the metrics that the other parts count with, and those of the process.
func (s *service) measure() {
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.measured = metrics.New(s.registry, s.process.Now)
	s.measured.SetBuild(s.process.Version)
	s.shadows = shadow.New(s.process.Now)
	bounds := api.Bounds
	if s.settings.Proxies() {
		bounds = append(slices.Clip(bounds), proxy.Full)
	}
	s.reached = metrics.NewHTTPConnections(s.registry, func() (open int) {
		for _, listener := range s.listeners {
			open += listener.Len()
		}
		return open
	}, bounds)
}

// follow opens the exporter of traces and metrics, if the environment asks for it.
func (s *service) follow(ctx context.Context) (err error) {
	if s.telemetry, err = otlp.Open(ctx, s.process.Version, s.registry, s.log); err != nil {
		return command.Fail(err)
	}
	if s.telemetry.Tracer() != nil {
		s.measured.ShowTraces()
	}
	return nil
}

// secure opens the audit log, reads the callers, and refuses addresses that would be open to everybody.
func (s *service) secure(stderr io.Writer) (err error) {
	if s.audit, err = openAuditLog(s.settings.AuditLog, s.settings.LogHandler(stderr, slog.LevelInfo), s.log); err != nil {
		return command.Fail(err)
	}
	if s.guard, err = openSecurity(&s.settings.Security, s.measured, s.audit, s.log); err != nil {
		return err
	}
	if err := s.guard.mayListen("--listen", s.settings.Listen); err != nil || s.settings.EnvoyListen == "" {
		return err
	}
	return s.guard.mayListen("--envoy-listen", s.settings.EnvoyListen)
}

// observer returns the functions by which metrics, shadows and events learn of decisions.
func (s *service) observer() limiter.Observer {
	return limiter.Observer{
		Decided: func(op count.Op, key store.Key, cost int64, d *count.Decision) {
			s.measured.Observe(op, key, cost, d)
			s.shadows.Observe(op, key, cost, d)
			s.events.decided(key, d)
		},
		Called: s.measured.ObserveCall,
		Confirmed: func(policy string, key store.Key, units int64) {
			s.measured.Confirmed(policy, key, units)
			s.shadows.Confirmed(policy, key, units)
		},
		Refunded: s.measured.Refunded,
		Blocked:  s.events.blocked, Unblocked: s.events.unblocked,
		Relented: s.events.relented,
	}
}

// decide makes the engine over the open store, with its peers if there are any. It has no policies yet.
func (s *service) decide(ctx context.Context, options *limiter.Options) (err error) {
	s.log.Info("serving", "version", s.process.Version, "store", s.settings.Store, "namespace", s.settings.Namespace)
	if s.peers, err = openPeers(ctx, s.settings, s.store, s.log); err != nil {
		return err
	}
	options.Now, options.Owners = s.process.Now, s.peers.owners()
	options.Observer = s.observer()
	options.Datacenter, options.Skewed = s.store.datacenter, s.store.skewed
	options.Local, options.Feed = s.store.local, s.store.feed
	if s.telemetry.Tracer() != nil {
		options.Together = tracing.Together
	}
	s.engine = limiter.New(s.store.store, options)
	s.peers.engine = s.engine
	if s.store.onMove != nil {
		s.store.onMove(s.engine.MoveTo)
	}
	s.registry.MustRegister(s.peers.metrics()...)
	if s.store.saving != nil {
		s.registry.MustRegister(metrics.NewSaving(s.process.Now, s.store.saving))
	}
	if !s.engine.InMemory() {
		s.registry.MustRegister(
			metrics.NewBehind(s.engine.Behind), metrics.NewRemembered(s.engine.Remembered), metrics.NewColdReads(s.engine.ColdReads),
		)
	}
	return nil
}

// putInForce puts in force the policies, from the file of watcher or from the store, and the overrides.
func (s *service) putInForce(ctx context.Context, watcher *policyfile.Watcher, policies policyfile.File) error {
	s.envoy = s.newEnvoy()
	s.measured.Countries = metrics.Countries{Names: identifier.Countries(), KeyOf: s.engine.KeyOf}
	s.source = &policySource{
		watcher: watcher, store: s.store.policies, engine: s.engine, refuses: s.store.canPromise, envoy: s.envoy,
		metrics: s.measured, shadows: s.shadows, events: &s.events, audit: s.audit, log: s.log,
	}
	if watcher == nil {
		s.source.followStore(ctx, policies)
	} else if _, err := s.source.set(0, policies); err != nil {
		return err
	}
	s.measured.SetReloaded(metrics.FilePolicies, true)
	if err := s.engine.CatchUp(ctx); err != nil && !errors.Is(err, store.ErrNotConnected) {
		s.log.Warn("overrides and blocks that were made before are not known yet", "error", err)
	}
	return nil
}

// listen opens the listeners of all servers, and returns a stage that serves them. The proxy stops first, because
// applications behind it may call the other servers until they have answered.
func (s *service) listen(ctx context.Context) (stage, error) {
	web, err := s.listenHTTP(ctx)
	if err != nil {
		return nil, command.Fail(err)
	}
	serveEnvoy, err := s.listenEnvoy(ctx)
	if err != nil {
		return nil, command.Fail(errors.Join(err, web.listener.Close()))
	}
	serveProxy, err := s.listenProxy(ctx)
	if err != nil {
		return nil, errors.Join(err, web.listener.Close())
	}
	return func(ctx context.Context) error {
		return inOrder(ctx, serveProxy, together(web.run, serveEnvoy))
	}, nil
}

// run runs all parts until ctx ends or one fails. It stops them in this order, each one after those that may still need
// it.
func (s *service) run(ctx context.Context, servers stage, hangup <-chan os.Signal) error {
	reloads := together(s.source.run, s.guard.run, onHangup(hangup, s.audit.reload, s.source.reload, s.guard.reload))
	garbage := sparing(s.process.Getenv("GOGC"))
	err := inOrder(ctx, servers, s.runUI, reloads, s.runPeers(), s.engine.Run, s.store.run, together(s.measured.Run, s.runWatcher),
		s.events.sender.Run, s.telemetry.Run, garbage)
	if err != nil {
		return command.Fail(err)
	}
	s.log.Info("stopped")
	return nil
}

// How long requests in flight may take after a signal. A decision takes less, and a shutdown of ten seconds leaves time
// to take back units that were not admitted. Behind a proxy, applications may still make calls until they have
// answered, so the proxy's requests end first.
const (
	drainTimeout        = 5 * time.Second
	drainTimeoutOfProxy = 4 * time.Second
	drainTimeoutBehind  = 2 * time.Second
)

// drain returns the time for requests in flight, except those of the proxy.
func (s *service) drain() time.Duration {
	if s.settings.Proxies() {
		return drainTimeoutBehind
	}
	return drainTimeout
}
