package bounded

import (
	"cmp"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Recent maps the keys that were put last to values. The values are only hints that may make a decision cheaper. The zero
// Recent is empty.
type Recent[V any] struct {
	Most int // number of keys in each of two generations; 0: 64 Ki. When the younger one is full, the older one is dropped

	mu         sync.Mutex
	young, old map[store.Key]V
}

// maxRecent is the default of Most: a few MiB, at 32 bytes a key.
const maxRecent = 1 << 16

// Get returns the value of key, false if there is none.
func (r *Recent[V]) Get(key store.Key) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.young[key]; ok {
		return v, true
	}
	v, ok = r.old[key]
	return v, ok
}

// Put sets the value of key to v.
func (r *Recent[V]) Put(key store.Key, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= cmp.Or(r.Most, maxRecent) || r.young == nil {
		r.old, r.young = r.young, make(map[store.Key]V)
	}
	r.young[key] = v
}

// Remove removes key.
func (r *Recent[V]) Remove(key store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, key)
	delete(r.old, key)
}
