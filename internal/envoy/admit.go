package envoy

import (
	"context"
	"crypto/x509"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// refuse returns err, which is about the caller, and reports it to Options.Refused.
func (s *Server) refuse(ctx context.Context, caller *auth.Caller, err error) error {
	if s.opts.Refused == nil {
		return err
	}
	name := ""
	if caller != nil {
		name = caller.Name
	}
	s.opts.Refused(ctx, name, err)
	return err
}

// admit authenticates the caller, and returns an error if it may not call op. It returns a known caller even with an
// error.
func (s *Server) admit(ctx context.Context, op count.Op) (*auth.Caller, error) {
	authorization, certificate := "", (*x509.Certificate)(nil)
	if !s.opts.Keyring.Open() {
		shown := metadata.ValueFromIncomingContext(ctx, "authorization")
		if len(shown) > 1 { // a proxy in between might use another one
			return nil, auth.ErrNotBearer
		}
		if len(shown) == 1 {
			authorization = shown[0]
		}
		certificate = certificateOf(ctx)
	}
	caller, err := s.opts.Keyring.Caller(authorization, certificate)
	if err != nil {
		return nil, err
	}
	if needed := scopeOf(op); !caller.May(needed) {
		return caller, fmt.Errorf("%w: it needs the scope %v", auth.ErrForbidden, needed)
	}
	return caller, nil
}

// certificateOf returns the peer's certificate, if one was verified.
func certificateOf(ctx context.Context) *x509.Certificate {
	from, _ := peer.FromContext(ctx)
	if from == nil {
		return nil
	}
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// scopeOf returns the scope that permits op.
func scopeOf(op count.Op) auth.Scope {
	if op == count.OpRecord {
		return auth.Record
	}
	return auth.Decide
}

// permitted returns an error if caller may not use the policies of asks.
func permitted(caller *auth.Caller, asks []ask) error {
	for i := range asks {
		if a := &asks[i]; a.limited() && !caller.MayUse(a.rule.policy) {
			return fmt.Errorf("descriptors[%d]: %w: the caller may use other policies only", i, auth.ErrForbidden)
		}
	}
	return nil
}
