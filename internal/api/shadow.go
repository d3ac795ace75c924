package api

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func (s *Server) shadow(ctx context.Context, name string) (answer, error) {
	p, inForce := s.engine.Policy(name)
	if !inForce {
		return nil, limiter.ErrUnknownPolicy
	}
	view := s.opts.Shadow(ctx, name)
	view.Policy, view.Mode = p.Name, p.Mode
	if view.Since != nil {
		view.Since = new(encode.ToMilliseconds(*view.Since))
	}
	for i := range view.Instances {
		view.Instances[i].Since = encode.ToMilliseconds(view.Instances[i].Since)
	}
	for i := range view.Limits {
		l := &view.Limits[i]
		for _, of := range p.Limits {
			if of.Name == l.Name {
				l.Limit = of.Limit
			}
		}
	}
	return encode.Document{Content: view}, nil
}
