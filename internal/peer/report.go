package peer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

const (
	maxQuestion = 256 << 10 // more than the names of a thousand policies need
	maxReport   = 16 << 20  // more than sixteen shadow policies need that would each deny many callers in every hour of a week
)

// Report asks a member for figures and returns its answer, which is empty if it has none. Both are in the format of
// Server.Reports.
func (p *Pool) Report(ctx context.Context, to cluster.Member, question []byte) ([]byte, error) {
	conn, err := grpc.NewClient(to.Address, grpc.WithTransportCredentials(p.creds))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	asked := &peerpb.ReportQuestion{Question: question}
	answer, err := peerpb.NewPeerClient(conn).Report(addressedTo(ctx, to), asked, grpc.MaxCallRecvMsgSize(maxReport))
	if err != nil {
		return nil, err
	}
	return answer.GetReport(), nil
}

// Report answers a question with this instance's figures.
func (s *Server) Report(ctx context.Context, q *peerpb.ReportQuestion) (*peerpb.ReportAnswer, error) {
	if err := checkAddressee(ctx, s.members.Self()); err != nil {
		return nil, err
	}
	if s.Reports == nil || len(q.GetQuestion()) > maxQuestion {
		return &peerpb.ReportAnswer{}, nil
	}
	return &peerpb.ReportAnswer{Report: s.Reports(q.GetQuestion())}, nil
}
