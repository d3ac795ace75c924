package bounded

import (
	"cmp"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Recent remembers something of the keys that were seen last. It holds hints: a
// decision may be cheaper for one, and none rests on it. The zero Recent is empty.
type Recent[V any] struct {
	Most int // keys in each of the two generations; 0: 64 Ki. Beyond, the older generation is forgotten

	mu         sync.Mutex
	young, old map[store.Key]V
}

// maxRecent is how many keys a generation has unless Most says so: of 32 bytes, they take a few MiB.
const maxRecent = 1 << 16

// Get returns what is remembered of key; false for nothing.
func (r *Recent[V]) Get(key store.Key) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.young[key]; ok {
		return v, true
	}
	v, ok = r.old[key]
	return v, ok
}

// Put remembers v of key.
func (r *Recent[V]) Put(key store.Key, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.young) >= cmp.Or(r.Most, maxRecent) || r.young == nil {
		r.old, r.young = r.young, make(map[store.Key]V)
	}
	r.young[key] = v
}

// Remove forgets key.
func (r *Recent[V]) Remove(key store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.young, key)
	delete(r.old, key)
}
