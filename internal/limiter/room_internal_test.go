package limiter

import "testing"

// Whose time is up just as they are called has the place, and nobody after them is called by it.
func TestRoomCallsOnce(t *testing.T) {
	r := newRoom(&Options{StoreTimeout: DefaultStoreTimeout, unsynced: 1})
	r.written()
	r.come()
	mine := r.queue()
	if mine == nil || len(mine.called) > 0 {
		t.Fatal("there is no room, and somebody need not wait for it")
	}
	r.leave(0)
	if r.giveUp(mine) {
		t.Error("a place that was called is given up")
	}
	if len(mine.called) > 0 {
		t.Error("the next one to have it is called at once")
	}
	if n := r.keys.Load(); n != 1 {
		t.Errorf("%d places are kept, want 1", n)
	}
}
