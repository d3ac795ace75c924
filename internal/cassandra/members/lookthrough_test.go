package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestPagesOfABusyNodeAreSmaller reads keys of a node that manages only so many at once: each of them is
// read, in order, and once.
func TestPagesOfABusyNodeAreSmaller(t *testing.T) {
	busy := fmt.Errorf("%w: busy", store.ErrUnavailable)
	const keys = 12_000
	for _, manages := range []int{lookPage, lookPage - 1, leastPage + 1, leastPage} {
		var read []int
		err := inPages(t.Context(), func(size int, after []byte) ([]byte, error) {
			if size > manages {
				return nil, busy
			}
			first, _ := strconv.Atoi(string(after))
			end := min(first+size, keys)
			for i := first; i < end; i++ {
				read = append(read, i)
			}
			if end == keys {
				return nil, nil
			}
			return []byte(strconv.Itoa(end)), nil
		})
		if err != nil || len(read) != keys || !slices.IsSorted(read) || read[0] != 0 || read[keys-1] != keys-1 {
			t.Errorf("a node that manages %d: %d keys of %d, error %v", manages, len(read), keys, err)
		}
	}
}

// TestPagesThatFailForGood holds that a node which answers nothing, a context that ends, and too many keys each end it.
func TestPagesThatFailForGood(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		name  string
		ctx   context.Context
		err   error
		tries int
	}{
		{"answers nothing", t.Context(), store.ErrUnavailable, 3},
		{"context ended", ended, store.ErrUnavailable, 1},
		{"other errors", t.Context(), errors.New("too many"), 1},
	} {
		tries := 0
		err := inPages(c.ctx, func(int, []byte) ([]byte, error) { tries++; return nil, c.err })
		if !errors.Is(err, c.err) || tries != c.tries {
			t.Errorf("%s: %d tries, error %v; want %d, %v", c.name, tries, err, c.tries, c.err)
		}
	}
}

// TestLookingTakesATenthOfTheTime holds that decisions have a node for nine tenths of the time, however long it takes
// for a page.
func TestLookingTakesATenthOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages = 20
		read, looked, began := 0, time.Duration(0), time.Now()
		err := inPages(t.Context(), func(int, []byte) ([]byte, error) {
			read++
			took := time.Duration(read) * time.Millisecond
			time.Sleep(took)
			if read == pages {
				return nil, nil
			}
			looked += took
			return []byte("more"), nil
		})
		if took := time.Since(began) - pages*time.Millisecond; err != nil || took != 10*looked {
			t.Errorf("it looked for %v within %v, error %v; want a tenth", looked, took, err)
		}
	})
}
