package envoy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/envoy/kuadrantpb"
	"github.com/ratelimitd/ratelimitd/internal/grpcbound"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// Bounds of a connection and its requests.
const (
	// maxMessage is far more than the headers that Envoy accepts from a client (60 KiB), in several descriptors: long
	// headers must not make a client's check fail.
	maxMessage = 1 << 20
	// maxStreams is the maximum of requests in progress on a connection. An Envoy has a connection for each of its
	// threads.
	maxStreams = 1000
	// streamWorkers is the number of goroutines that answer one request after the other. Their stacks have already grown,
	// which saves a quarter of a request's time. If all of them wait for the store, requests get goroutines of their own.
	streamWorkers  = 64
	maxHeaderList  = 16 << 10
	connectTimeout = 5 * time.Second // a handshake is a packet or two
	// defaultIdle is how long a connection may be idle, as with HTTP.
	defaultIdle = 2 * time.Minute
	// maxAge makes Envoys reconnect, so that new instances get their share.
	maxAge      = time.Hour
	maxAgeGrace = 30 * time.Second
	// pingEvery is the interval of pings, which detect peers that have disappeared.
	pingEvery   = time.Minute
	pingTimeout = 10 * time.Second
	// minPing is the least time between a peer's own pings.
	minPing = 10 * time.Second
	// readyEvery is the interval at which health is updated.
	readyEvery = time.Second
)

// ListenerOptions of a Listener.
type ListenerOptions struct {
	Connections int                         // maximum of open connections; a further one replaces an idle one
	Idle        time.Duration               // how long a connection may be idle; 0: two minutes
	Reached     func(connections.Bound)     // is called if a bound turns a connection away; must not block, and may be nil
	Drain       time.Duration               // time for requests in progress when it stops
	Ready       func(context.Context) error // its error makes health "not serving"; nil: always ready
	GRPC        []grpc.ServerOption         // besides the bounds: credentials, interceptors
}

// Listener serves a Server over gRPC, with the health service beside it. Make one with
// NewListener.
type Listener struct {
	listener *grpcbound.Listener
	opts     ListenerOptions
	server   *grpc.Server
	health   *health.Server
	stopping context.Context // ends when streams are to end
	endAll   context.CancelFunc
}

// NewListener returns a Listener that serves s to clients of listener, which Run closes at its end.
func NewListener(s *Server, listener net.Listener, opts ListenerOptions) *Listener {
	l := &Listener{
		listener: grpcbound.Limit(listener, connections.NewPlaces(opts.Connections, opts.Reached)), opts: opts,
		health: health.NewServer(),
	}
	l.stopping, l.endAll = context.WithCancel(context.Background())
	l.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: cmp.Or(opts.Idle, defaultIdle),
			MaxConnectionAge:  maxAge, MaxConnectionAgeGrace: maxAgeGrace, Time: pingEvery, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.intercept),
		grpc.ChainStreamInterceptor(l.endInTime),
	}, opts.GRPC...)...)
	rls.RegisterRateLimitServiceServer(l.server, s)
	kuadrantpb.RegisterRateLimitServiceServer(l.server, s)
	healthpb.RegisterHealthServer(l.server, l.health)
	l.setHealth(healthpb.HealthCheckResponse_NOT_SERVING) // until it is known
	return l
}

// Open returns how many connections are open.
func (l *Listener) Open() int { return l.listener.Len() }

// Run answers requests until ctx ends, and then those in progress, for at most ListenerOptions.Drain. It returns nil,
// or the error that ended it.
func (l *Listener) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := l.server.Serve(l.listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	g.Go(func() error { l.followReadiness(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		l.stop()
		return nil
	})
	return g.Wait()
}

// stop tells clients to reconnect elsewhere, ends the streams that watch health, waits for requests in progress, and
// cuts off those that take too long.
func (l *Listener) stop() {
	l.endAll()
	cut := time.AfterFunc(l.opts.Drain, l.server.Stop)
	defer cut.Stop()
	l.server.GracefulStop()
}

// endInTime ends a stream when the listener stops, which would otherwise wait for it. Only watchers of health have
// streams.
func (l *Listener) endInTime(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(l.stopping, cancel)()
	return handle(srv, &endingStream{stream, ctx})
}

// endingStream is a stream whose context ends with the listener.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context that ends with the listener.
func (s *endingStream) Context() context.Context { return s.ctx }

// followReadiness keeps health up to date until ctx ends.
func (l *Listener) followReadiness(ctx context.Context) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		l.setHealth(l.readiness(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (l *Listener) readiness(ctx context.Context) healthpb.HealthCheckResponse_ServingStatus {
	if l.opts.Ready != nil && l.opts.Ready(ctx) != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}

// HealthName is the service name of envoyproxy/ratelimit's health.
const HealthName = "ratelimit"

// setHealth sets the status of all services, which is the same.
func (l *Listener) setHealth(to healthpb.HealthCheckResponse_ServingStatus) {
	for _, service := range []string{
		"", rls.RateLimitService_ServiceDesc.ServiceName, kuadrantpb.RateLimitService_ServiceDesc.ServiceName, HealthName,
	} {
		l.health.SetServingStatus(service, to)
	}
}
