package api

import "context"

// reset forgets what was counted for a.Identifier under a.Policy.
func (s *Server) reset(ctx context.Context, a admin) (answer, error) {
	err := s.engine.Reset(ctx, a.Policy, a.Identifier)
	if err != nil {
		err = &callError{recorded: recordedOf(err), err: err}
	}
	s.audit(ctx, &a.by, "reset", &a.Demand, err)
	if err != nil {
		return nil, err
	}
	return nothing{}, nil
}
