package embedded

import "context"

// RunUnswept is Run without sweeps: for what is dated long ago.
func (s *Store) RunUnswept(ctx context.Context) error { return s.saves(ctx) }
