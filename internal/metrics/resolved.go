package metrics

import (
	"maps"
	"sync"
	"sync/atomic"
)

// resolved has the series of a vector by their two labels. The zero value is ready to use.
type resolved[T any] struct {
	setting sync.Mutex
	series  atomic.Pointer[map[[2]string]T] // changed by a copy
}

// of returns the series of labels, made by resolve at its first use.
func (r *resolved[T]) of(labels [2]string, resolve func(labels ...string) T) T {
	if known := r.series.Load(); known != nil {
		if series, ok := (*known)[labels]; ok {
			return series
		}
	}
	r.setting.Lock()
	defer r.setting.Unlock()
	grown := make(map[[2]string]T)
	if known := r.series.Load(); known != nil {
		maps.Copy(grown, *known)
	}
	grown[labels] = resolve(labels[0], labels[1])
	r.series.Store(&grown)
	return grown[labels]
}
