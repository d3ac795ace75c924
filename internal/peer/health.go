package peer

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// Each member is asked, again and again, whether it answers: what is sent on a way that leads nowhere
// any more is lost for minutes without an error. gRPC's own keepalive asks every ten seconds at most.
const (
	askEvery     = 500 * time.Millisecond
	answerWithin = time.Second     // else the member is not reached
	dialWithin   = 2 * time.Second // more than answerWithin, which says then what is wrong
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
		asking, cancel := context.WithTimeout(ctx, answerWithin)
		_, err := healthpb.NewHealthClient(conn).Check(asking, &healthpb.HealthCheckRequest{})
		cancel()
		if status.Code(err) == codes.DeadlineExceeded {
			stop(errSilent)
			return
		}
	}
}
