package limiter

import "sync"

// shareOut has at most this many workers do all items, and returns when all are done.
func shareOut[T any](workers int, items []T, do func(T)) {
	next := make(chan T)
	var all sync.WaitGroup
	for range min(workers, len(items)) {
		all.Go(func() {
			for item := range next {
				do(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	all.Wait()
}
