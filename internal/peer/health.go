package peer

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// Each member is asked, again and again, whether it answers: what is sent on a way that leads nowhere
// any more is lost for minutes without an error. gRPC's own keepalive asks every ten seconds at most.
const (
	askEvery     = 500 * time.Millisecond
	answerWithin = time.Second     // else the member is not reached
	dialWithin   = 2 * time.Second // more than answerWithin, which says then what is wrong
	listenEvery  = 50 * time.Millisecond
	longestDeaf  = 2 * listenEvery // that counts as listening
)

// errSilent is a member that has not answered, nor refused, within answerWithin.
var errSilent = errors.New("the peer does not answer")

// dial returns a connection to the member, which is made by its first use.
func (l *link) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(l.member.Address,
		grpc.WithTransportCredentials(l.pool.creds),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: dialWithin}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// open opens the stream of calls. It returns errSilent if nobody answers, and any other error if
// connections are refused.
func (l *link) open(ctx context.Context, stop context.CancelCauseFunc, conn *grpc.ClientConn) (
	grpc.BidiStreamingClient[peerpb.Calls, peerpb.Answers], error,
) {
	late := time.AfterFunc(answerWithin, func() { stop(errSilent) })
	defer late.Stop()
	stream, err := peerpb.NewPeerClient(conn).Decide(ctx)
	if err == nil {
		_, err = stream.Header() // which the server sends at once
	}
	if err == nil && !late.Stop() {
		err = errSilent
	}
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return stream, err
}

// watch asks until ctx ends, which it ends itself with errSilent when there is no answer.
func watch(ctx context.Context, stop context.CancelCauseFunc, conn *grpc.ClientConn) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if errors.Is(ask(ctx, conn), errSilent) {
			stop(errSilent)
			return
		}
	}
}

// ask asks once. It returns errSilent without an answer after answerWithin, in which this process listened.
func ask(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, stop := context.WithCancelCause(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		if listen(ctx, time.Now, answerWithin) {
			stop(errSilent)
		}
	})
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	stop(nil)
	listening.Wait()
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// listen reports true after d, and false when ctx ends before. Only the time counts in which this process ran:
// while it stood still, or waited for a processor, it could not hear an answer.
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
