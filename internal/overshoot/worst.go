package overshoot

import (
	"cmp"
	"slices"
	"time"

	"github.com/apache/datasketches-go/frequencies"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	// worstHalf is half of the period of the worst keys, so that a caller that stopped an hour ago does not hide one that
	// goes on.
	worstHalf = 30 * time.Minute
	// sketchSize is the largest hash table of a sketch, a power of two, which is full at three quarters. With it a count
	// is off by at most 0.35 % of all attempts in the half, and a sketch takes 43 KB.
	sketchSize = 1 << 10
)

// sketch is a Misra-Gries sketch: it keeps the most frequent keys, and knows the maximum of its error.
type sketch = frequencies.ItemsSketch[store.Key]

// worst knows the keys with the most attempts by two sketches of half an hour each: the older one is dropped when a new
// one begins. The zero worst knows none.
type worst struct {
	began   time.Time // the current half
	current *sketch   // nil: nothing was counted in it
	last    *sketch   // of the half before; nil likewise
}

// turn begins another half if the current one is over.
func (w *worst) turn(now time.Time) {
	halves := now.Sub(w.began) / worstHalf
	if halves <= 0 {
		return
	}
	w.began = w.began.Add(halves * worstHalf)
	w.last, w.current = w.current, nil
	if halves > 1 {
		w.last = nil
	}
}

// add counts attempts of key.
func (w *worst) add(key store.Key, attempts int64, now time.Time) {
	w.turn(now)
	if w.current == nil {
		w.current = newSketch()
	}
	_ = w.current.UpdateMany(key, attempts) // it only fails for a negative number
}

// newSketch returns an empty sketch, which grows as needed.
func newSketch() *sketch {
	s, _ := frequencies.NewFrequencyItemsSketchWithMaxMapSize[store.Key](sketchSize, byPrefix{}, nil)
	return s // it only fails for a size that is not a power of two
}

// byPrefix hashes keys, which are hashes.
type byPrefix struct{}

// Hash returns the start of key.
func (byPrefix) Hash(key store.Key) uint64 { return key.Prefix() }

// top returns the n keys with the highest lower bounds of attempts since an instant, and an upper bound for all other
// keys. Equal ones are sorted by key.
func (w *worst) top(n int, now time.Time) (all []Heavy, unlisted int64, since time.Time) {
	w.turn(now)
	halves := [2]*sketch{w.current, w.last}
	seen := make(map[store.Key]bool)
	for _, half := range halves {
		if half != nil {
			unlisted += half.GetMaximumError()
		}
		for _, key := range keysOf(half) {
			if !seen[key] {
				seen[key] = true
				all = append(all, heavy(key, halves))
			}
		}
	}
	all, unlisted = cutWorst(all, unlisted, n)
	return all, unlisted, w.began.Add(-worstHalf)
}

// cutWorst returns the n worst of all, and an upper bound of the attempts of other keys. unlisted is that bound for
// keys that are not in all.
func cutWorst(all []Heavy, unlisted int64, n int) ([]Heavy, int64) {
	slices.SortFunc(all, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), a.Key.Compare(b.Key))
	})
	n = min(n, len(all))
	for _, h := range all[n:] {
		unlisted = max(unlisted, h.Attempts+h.Error)
	}
	return all[:n], unlisted
}

// keysOf returns the keys in s.
func keysOf(s *sketch) (keys []store.Key) {
	if s == nil {
		return nil
	}
	rows, _ := s.GetFrequentItems(frequencies.ErrorTypeEnum.NoFalseNegatives) // it can't fail
	for _, row := range rows {
		keys = append(keys, row.GetItem())
	}
	return keys
}

// heavy returns the attempts of key in the halves. A half without the key may have purged it, so its error counts, too.
func heavy(key store.Key, halves [2]*sketch) Heavy {
	h := Heavy{Key: key}
	for _, half := range halves {
		if half == nil {
			continue
		}
		least, _ := half.GetLowerBound(key) // neither can fail
		h.Attempts += least
		h.Error += half.GetMaximumError()
	}
	return h
}
