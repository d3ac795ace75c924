package peer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// maxReport is more than sixteen limits that each would deny many callers in every hour of a week.
const maxReport = 16 << 20

// Shadow returns what to counted of a policy's shadows; empty: nothing of the policy is in shadow there.
func (p *Pool) Shadow(ctx context.Context, to cluster.Member, policy string) ([]byte, error) {
	conn, err := grpc.NewClient(to.Address, grpc.WithTransportCredentials(p.creds))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := peerpb.NewPeerClient(conn).Shadow(ctx, &peerpb.ShadowQuestion{Policy: policy}, grpc.MaxCallRecvMsgSize(maxReport))
	if err != nil {
		return nil, err
	}
	return answer.GetReport(), nil
}

// Shadow says what this instance counted of a policy's shadows.
func (s *Server) Shadow(_ context.Context, q *peerpb.ShadowQuestion) (*peerpb.ShadowAnswer, error) {
	if s.Shadows == nil {
		return &peerpb.ShadowAnswer{}, nil
	}
	return &peerpb.ShadowAnswer{Report: s.Shadows(q.GetPolicy())}, nil
}
