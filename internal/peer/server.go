package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/grpcbound"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

const (
	maxUnderWay = 16384           // most calls of one stream that are being decided; further ones wait to be read
	maxIdle     = 128             // most goroutines of one stream that wait for further calls
	longestCall = 5 * time.Second // the longest time for a call, even if the peer gives more
	minPing     = 5 * time.Second
	handshake   = 5 * time.Second  // the longest time until a connection can carry calls
	idleFor     = 30 * time.Second // a connection without a stream is closed after this; a peer's always has one
	pingEvery   = 10 * time.Second // interval of pings on a connection without traffic
	pingTimeout = 2 * time.Second

	// Members hand calls on to a member that has left until its answers say so.
	quietBefore = 200 * time.Millisecond // connections are closed after this time without a call
	endWithin   = 2 * time.Second
)

// Decider decides charges that are handed to this instance. A limiter.Engine implements it.
type Decider interface {
	DecideForPeer(ctx context.Context, c *demand.Charge) error
}

// Server decides calls that other instances hand on. Make one with NewServer.
type Server struct {
	peerpb.UnimplementedPeerServer

	listener *grpcbound.Listener
	decider  Decider
	members  Views
	tracer   *tracing.Tracer
	server   *grpc.Server

	underWay atomic.Int64 // number of calls being decided
	answered atomic.Int64 // number of calls answered since the start

	// Reports answers a question of another instance's Pool.Report with this instance's figures; nil: there are none.
	// It must be set before Run.
	Reports func(question []byte) []byte

	// TurnedAway is called with the bound that refused or closed a connection. It must not block; nil: no call. It must
	// be set before Run.
	TurnedAway func(connections.Bound)
}

// Bounds of the connections to a Server. A stranger does not have the secret, so its connection never has a call. Without a
// bound of their own, strangers would use up the process's descriptors.
const (
	maxConnections = 4096 // one from each of as many instances
	maxStrangers   = 256  // most connections without a call; the oldest is closed for a new one
)

// NewServer returns a server for peers that connect to listener with creds. decider decides their calls, and members accepts
// their key sets. Traced calls continue in spans of tracer; nil: there are no spans.
func NewServer(
	listener net.Listener, creds credentials.TransportCredentials, decider Decider, members Views, tracer *tracing.Tracer,
) *Server {
	s := &Server{decider: decider, members: members, tracer: tracer}
	places := connections.NewPlaces(maxConnections, s.turnedAway)
	places.LimitIdle(maxStrangers)
	s.listener = grpcbound.Limit(listener, places)
	s.server = grpc.NewServer(append(grpcbound.Options(),
		grpc.Creds(creds),
		grpc.ConnectionTimeout(handshake),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleFor, Time: pingEvery, Timeout: pingTimeout}),
	)...)
	peerpb.RegisterPeerServer(s.server, s)
	healthpb.RegisterHealthServer(s.server, &memberHealth{Server: health.NewServer(), members: members})
	return s
}

// Connections returns the number of open connections.
func (s *Server) Connections() int { return s.listener.Len() }

func (s *Server) turnedAway(bound connections.Bound) {
	if s.TurnedAway != nil {
		s.TurnedAway(bound)
	}
}

// Run answers calls until ctx ends. After that it answers late calls until there are none, or two seconds are over. It returns
// nil, or the error that stopped it.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := s.server.Serve(s.listener); !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		s.awaitQuiet()
		s.server.Stop()
		return nil
	})
	return g.Wait()
}

// awaitQuiet waits until no call has been in progress for quietBefore, or endWithin is over.
func (s *Server) awaitQuiet() {
	tick := time.NewTicker(quietBefore / 10)
	defer tick.Stop()
	began := time.Now()
	since, answered := began, s.answered.Load()
	for now := range tick.C {
		if n := s.answered.Load(); n != answered || s.underWay.Load() > 0 {
			since, answered = now, n
		}
		if now.Sub(since) >= quietBefore || now.Sub(began) >= endWithin {
			return
		}
	}
}

// answering is the stream of one peer.
type answering = grpc.BidiStreamingServer[peerpb.Calls, peerpb.Answers]

// Decide answers the calls of one peer until it ends the stream.
func (s *Server) Decide(stream grpc.BidiStreamingServer[peerpb.Calls, peerpb.Answers]) error {
	if err := stream.SendHeader(metadata.Pairs(memberHeader, string(s.members.Self()))); err != nil { // tells the peer that it is connected
		return err
	}
	answers := make(chan *peerpb.Answer, maxUnderWay)
	g, ctx := errgroup.WithContext(stream.Context())
	g.Go(func() error { return sendAnswers(ctx, stream, answers) })
	g.Go(func() error { return s.decideAll(ctx, stream, answers) })
	return g.Wait()
}

// decideAll reads calls and decides each, until the stream ends.
func (s *Server) decideAll(ctx context.Context, stream answering, answers chan<- *peerpb.Answer) error {
	var underWay sync.WaitGroup
	defer underWay.Wait()
	places := make(chan struct{}, maxUnderWay)
	again := &idle{calls: make(chan *peerpb.Call)}
	defer close(again.calls)
	decide := func(call *peerpb.Call) {
		defer func() { s.answered.Add(1); s.underWay.Add(-1) }()
		answer := s.decide(ctx, call)
		if call.GetNumber() > 0 {
			select {
			case answers <- answer:
			case <-ctx.Done():
			}
		}
		<-places // only now, so that a peer that does not read its answers can't make more and more of them wait
	}
	for {
		calls, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("the peer ended the stream: %w", err)
		}
		for _, call := range calls.GetCalls() {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			s.underWay.Add(1)
			select {
			case again.calls <- call:
			default:
				underWay.Go(func() {
					for ok := true; ok; call, ok = again.next() {
						decide(call)
					}
				})
			}
		}
	}
}

// idle has the goroutines of a stream that have decided a call and wait for another one. They are reused because their stacks
// have grown already, which costs a new goroutine a quarter of its time.
type idle struct {
	calls  chan *peerpb.Call
	number atomic.Int32
}

// next returns the next call for the calling goroutine, false if it must end.
func (i *idle) next() (call *peerpb.Call, ok bool) {
	defer i.number.Add(-1)
	if i.number.Add(1) > maxIdle {
		return nil, false
	}
	call, ok = <-i.calls
	return call, ok
}

// decide decides one call within its time.
func (s *Server) decide(ctx context.Context, call *peerpb.Call) *peerpb.Answer {
	within := min(time.Duration(call.GetWithinMicros())*time.Microsecond, longestCall)
	if within <= 0 {
		within = longestCall
	}
	ctx, cancel := clock.Within(ctx, within)
	defer cancel()
	c, err := chargeOf(call)
	if err == nil {
		parent := tracing.Parent{Traceparent: call.GetTraceparent(), Tracestate: call.GetTracestate()}
		within, span := s.tracer.DecideForPeer(ctx, parent, c)
		err = s.decider.DecideForPeer(within, c)
		span.HandedOn(c, err)
	}
	answer := answerOf(call.GetNumber(), c, err)
	answer.View = s.members.Known()
	return answer
}

// sendAnswers sends answers, many in a message, until ctx ends.
func sendAnswers(ctx context.Context, stream answering, answers <-chan *peerpb.Answer) error {
	for {
		var sent peerpb.Answers
		if err := gather(ctx, answers, func(a *peerpb.Answer) { sent.Answers = append(sent.Answers, a) }); err != nil {
			return err
		}
		if err := stream.Send(&sent); err != nil {
			return err
		}
	}
}
