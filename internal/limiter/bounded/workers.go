package bounded

import (
	"iter"
	"sync"
)

// Each calls do with all items in at most workers goroutines, and returns when all calls have returned.
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
