package bounded

import (
	"iter"
	"sync"
)

// Each has at most this many workers do all items, and returns when all are done.
func Each[T any](workers int, items iter.Seq[T], do func(T)) {
	next := make(chan T)
	var all sync.WaitGroup
	begun := 0
	for item := range items {
		if begun < workers {
			begun++
			all.Go(func() {
				for item := range next {
					do(item)
				}
			})
		}
		next <- item
	}
	close(next)
	all.Wait()
}
