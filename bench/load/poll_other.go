//go:build !linux

package load

import (
	"context"
	"errors"
)

// pollable reports that each worker makes its own calls.
func pollable([]*worker) bool { return false }

type poller struct {
	*run
	workers     []*worker
	first, step int
}

func (p *poller) work(context.Context) error { return errors.ErrUnsupported }
