package peer

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// A health check asks each member at intervals whether it answers, because messages on a broken path are lost for minutes
// without an error. gRPC's own keepalive asks at most every ten seconds.
const (
	askEvery     = 500 * time.Millisecond
	lateAfter    = 500 * time.Millisecond // a member that has not answered by then is late
	answerWithin = time.Second            // a member that has not answered by then is not reached
	dialWithin   = 2 * time.Second        // more than answerWithin, so that errSilent is the error
	listenEvery  = 50 * time.Millisecond
	longestDeaf  = 2 * listenEvery // the most time between two ticks that counts as listening
)

// memberHeader is the header with the id of the member that answers a stream, or that a single call is for. It is empty if
// the answering instance is not a member yet. An earlier version sends no such header.
const memberHeader = "ratelimitd-member"

// errOther means that an instance other than the member answers at the member's address, as behind a load balancer.
var errOther = errors.New("another instance answers at the peer's address: give each instance a --peer-address of its own")

// isOther reports whether headers name a member other than member.
func isOther(headers metadata.MD, member cluster.ID) bool {
	ids := headers.Get(memberHeader)
	return len(ids) > 0 && ids[0] != "" && ids[0] != string(member)
}

// errWrongMember is a member's answer to a call that is for another member.
var errWrongMember = status.Error(codes.NotFound, "this is another member: each instance needs a --peer-address of its own")

// addressedTo returns ctx for a single call to member, with the header that names it.
func addressedTo(ctx context.Context, member cluster.Member) context.Context {
	return metadata.AppendToOutgoingContext(ctx, memberHeader, string(member.ID))
}

// checkAddressee returns an error if ctx's call is for a member other than self. An earlier version names no member.
func checkAddressee(ctx context.Context, self cluster.ID) error {
	asked, _ := metadata.FromIncomingContext(ctx)
	if self != "" && isOther(asked, self) {
		return errWrongMember
	}
	return nil
}

// memberHealth is the health service. Callers name the member whose health they ask for.
type memberHealth struct {
	*health.Server
	members Views
}

// Check answers that this member serves, or errWrongMember if asked names another one.
func (h *memberHealth) Check(ctx context.Context, asked *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if self := h.members.Self(); asked.GetService() != "" && self != "" && asked.GetService() != string(self) {
		return nil, errWrongMember
	}
	return h.Server.Check(ctx, new(healthpb.HealthCheckRequest))
}

// errSilent means that a member has neither answered nor refused a connection within answerWithin.
var errSilent = errors.New("the peer does not answer")

// dial returns a connection to the member, which connects at its first use.
func (l *link) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(l.member.Address,
		grpc.WithTransportCredentials(l.pool.creds),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: dialWithin}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// open opens the stream of calls. It returns errSilent if there is no answer, errOther if another member answers, and any
// other error if connections are refused. named is the member's id for health checks, empty if an earlier version answers.
func (l *link) open(ctx context.Context, stop context.CancelCauseFunc, conn *grpc.ClientConn) (
	stream grpc.BidiStreamingClient[peerpb.Calls, peerpb.Answers], named cluster.ID, err error,
) {
	late := time.AfterFunc(answerWithin, func() { stop(errSilent) })
	defer late.Stop()
	stream, err = peerpb.NewPeerClient(conn).Decide(ctx)
	var headers metadata.MD
	if err == nil {
		headers, err = stream.Header() // which the server sends at once
	}
	if err == nil && isOther(headers, l.member.ID) {
		err = errOther
	}
	if len(headers.Get(memberHeader)) > 0 {
		named = l.member.ID
	}
	if err == nil && !late.Stop() {
		err = errSilent
	}
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return stream, named, err
}

// watch checks the health of the member named until ctx ends. It ends ctx itself, with errSilent if there is no answer, or
// with errOther if another member answers. It reports late answers to the pool's members.
func (l *link) watch(ctx context.Context, stop context.CancelCauseFunc, conn *grpc.ClientConn, named cluster.ID) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		late := false
		err := ask(ctx, conn, named, func() {
			late = true
			l.pool.members.Reach(l.member.ID, cluster.Late)
		})
		switch {
		case errors.Is(err, errSilent), errors.Is(err, errOther):
			stop(err)
			return
		case err == nil && !late:
			l.pool.members.Reach(l.member.ID, cluster.Reached)
		}
	}
}

// ask makes one health check. If there is no answer, it calls late after lateAfter, and returns errSilent after
// answerWithin. Both count only time in which this process listened.
func ask(ctx context.Context, conn *grpc.ClientConn, named cluster.ID, late func()) error {
	ctx, stop := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if !listen(ctx, time.Now, lateAfter) {
			return
		}
		late()
		if listen(ctx, time.Now, answerWithin-lateAfter) {
			stop(errSilent)
		}
	})
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: string(named)})
	stop(nil)
	listening.Wait()
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	if status.Code(err) == codes.NotFound {
		return errOther
	}
	return err
}

// listen returns true after d, or false if ctx ends before. Only time in which this process ran counts, because it could not
// receive an answer while it stood still or waited for a processor.
func listen(ctx context.Context, now func() time.Time, d time.Duration) bool {
	tick := time.NewTicker(listenEvery)
	defer tick.Stop()
	for last := now(); d > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
		at := now()
		d -= min(at.Sub(last), longestDeaf)
		last = at
	}
	return true
}
