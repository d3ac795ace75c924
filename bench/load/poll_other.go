//go:build !linux

package load

import (
	"context"
	"errors"
)

// pollable says that each worker asks for itself.
func pollable([]*worker) bool { return false }

type poller struct {
	*run
	workers     []*worker
	first, step int
}

func (p *poller) work(context.Context) error { return errors.ErrUnsupported }
