package route

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// views are owners that change: the second key's first owner is no longer that when it is asked.
type views struct {
	second store.Key
	view   int64                 // that is known to this instance
	opened map[store.Key][]int64 // by which views keys were opened
	held   map[int64]int         // rights of views
}

func (v *views) Guest(context.Context) (owner.Right, error) {
	v.held[v.view]++
	return viewRight{v, v.view}, nil
}

func (v *views) Place(_ context.Context, _ store.Key) (owner.Place, error) {
	return owner.Place{Owner: v, View: v.view}, nil
}

func (v *views) PlaceFor(context.Context, store.Key, int64) (owner.Right, error) {
	return nil, owner.ErrRefused
}

func (v *views) Decide(_ context.Context, call *owner.Call, _ *owner.Answer) error {
	if call.Key == v.second && v.view == 1 {
		v.view = 2
		return owner.ErrRefused
	}
	v.opened[call.Key] = append(v.opened[call.Key], call.View)
	return nil
}

func (v *views) Tell(*owner.Call) {}

type viewRight struct {
	views *views
	view  int64
}

func (r viewRight) Owned() bool                         { return false }
func (r viewRight) Began() time.Time                    { return time.Time{} }
func (r viewRight) Verified() time.Time                 { return time.Time{} }
func (r viewRight) Verify(context.Context) error        { return nil }
func (r viewRight) IsNew(store.Key, time.Duration) bool { return false }
func (r viewRight) Note(store.Key, time.Duration) error { return nil }
func (r viewRight) Leave()                              { r.views.held[r.view]-- }

// An instance that counts for several keys under the rights of one view has opened all of them
// under that view: a key that was opened by an earlier one may have an owner by now that knows
// nothing of it.
func TestAllKeysAreOpenedUnderTheViewThatIsGoneBy(t *testing.T) {
	of := func(first byte) *demand.Target {
		return &demand.Target{Plan: &demand.Plan{}, Key: store.KeyFrom([store.KeySize]byte{first})}
	}
	first, second := of(1), of(2)
	v := &views{second: second.Key, view: 1, opened: make(map[store.Key][]int64), held: make(map[int64]int)}
	r := &Router{owners: v, set: demand.Settings{}.WithDefaults()}
	g, err := r.openKeys(t.Context(), first, second)
	if err != nil {
		t.Fatal(err)
	}
	if v.held[1] != 0 || v.held[2] == 0 {
		t.Errorf("rights by view: %v", v.held)
	}
	for _, key := range []store.Key{first.Key, second.Key} {
		if by := v.opened[key]; len(by) == 0 || by[len(by)-1] != 2 {
			t.Errorf("key %v was opened by views %v, and is counted for by view 2", key, by)
		}
	}
	g.leave()
	if v.held[2] != 0 {
		t.Errorf("%d rights are never left", v.held[2])
	}
}
