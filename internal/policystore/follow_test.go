package policystore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/policystore/policystoretest"
)

// frail is a store that fails where that is set.
type frail struct {
	*policystore.Memory

	mu    sync.Mutex
	err   error // of Latest
	reads int   // of texts
}

func (f *frail) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *frail) Latest(ctx context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	return f.Memory.Latest(ctx)
}

func (f *frail) Read(ctx context.Context, number int64) (policystore.Set, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return f.Memory.Read(ctx, number)
}

// instance follows a store, and refuses policies that are called "refused".
type instance struct {
	*policystore.Follower
	mu      sync.Mutex
	inForce []string // the first policy of each version that came into force
}

func newInstance(from policystore.Store) *instance {
	i := new(instance)
	force := func(name string) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.inForce = append(i.inForce, name)
	}
	check := func(file policyfile.File) error {
		if file.Policies[0].Name == "refused" {
			return errors.New("it is refused")
		}
		return nil
	}
	i.Follower = policystore.NewFollower(from, &policystore.Options{
		Check: check,
		Force: func(number int64, file policyfile.File) error {
			if err := check(file); err != nil {
				return err
			}
			force(fmt.Sprint(number, " ", file.Policies[0].Name))
			return nil
		},
		None: func() error { force("none"); return nil },
	})
	return i
}

func (i *instance) want(t *testing.T, want ...string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if fmt.Sprint(i.inForce) != fmt.Sprint(want) {
		t.Errorf("%q came into force, want %q", i.inForce, want)
	}
}

func textOf(name string) string {
	return "policies: [{name: " + name + ", limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}]\n"
}

// bubble runs do with instances of one store that run until it returns.
func bubble(t *testing.T, do func(t *testing.T, from *frail, a, b *instance)) {
	synctest.Test(t, func(t *testing.T) {
		from := &frail{Memory: new(policystore.Memory)}
		a, b := newInstance(from), newInstance(from)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, i := range []*instance{a, b} {
			running.Go(func() { _ = i.Run(ctx) })
		}
		do(t, from, a, b)
		stop()
		running.Wait()
	})
}

func apply(t *testing.T, i *instance, name string, have, want int64) {
	t.Helper()
	v, err := i.Apply(t.Context(), []byte(textOf(name)), have, "me")
	if err != nil || v.Number != want || i.InForce() != want {
		t.Errorf("applying %s: %+v, %v, in force %d", name, v, err, i.InForce())
	}
}

// overtaken is a store in which others make versions while one is applied.
type overtaken struct {
	*policystore.Memory
	times int
}

func (o *overtaken) Put(ctx context.Context, have int64, set *policystore.Set) error {
	if o.times--; o.times >= 0 {
		other := *set
		other.Text = []byte(textOf(fmt.Sprint("other", o.times)))
		if err := o.Memory.Put(ctx, have, &other); err != nil {
			return err
		}
	}
	return o.Memory.Put(ctx, have, set)
}

// TestWhateverIsTheLatestIsReplaced checks that a replacement of any version is not refused for another that comes first.
func TestWhateverIsTheLatestIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInstance(&overtaken{Memory: new(policystore.Memory), times: 2})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- i.Run(ctx) }()
		apply(t, i, "one", policystore.Any, 3)
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		loser := newInstance(&overtaken{Memory: new(policystore.Memory), times: 1})
		if _, err := loser.Apply(t.Context(), []byte(textOf("one")), 0, "me"); !errors.Is(err, policystore.ErrConflict) {
			t.Errorf("a lost race for version 1: %v", err)
		}
	})
}

// TestVersionsComeIntoForce at once where they are applied, and within a second elsewhere.
func TestVersionsComeIntoForce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *frail, a, b *instance) {
		if a.Ready() == nil {
			t.Error("ready before the store has said anything")
		}
		time.Sleep(time.Second)
		if err := a.Ready(); err != nil {
			t.Error(err)
		}
		apply(t, a, "one", 0, 1)
		time.Sleep(time.Second)
		apply(t, b, "two", 1, 2)
		apply(t, b, "two", 2, 2) // the same text
		apply(t, b, "three", policystore.Any, 3)
		if _, err := a.Apply(t.Context(), []byte(textOf("late")), 2, "me"); !errors.Is(err, policystore.ErrConflict) {
			t.Errorf("a lost race: %v", err)
		}
		time.Sleep(time.Second)
		if a.InForce() != 3 {
			t.Errorf("version %d is in force elsewhere", a.InForce())
		}
		b.want(t, "none", "1 one", "2 two", "3 three")
		_, err := a.Apply(t.Context(), []byte("policies: [{name: x}]"), 3, "me")
		if err == nil || !strings.Contains(err.Error(), "policies:1: policies[0].limits") {
			t.Errorf("mistakes: %v", err)
		}
		if _, err := a.Apply(t.Context(), []byte(textOf("refused")), 3, "me"); err == nil || a.InForce() != 3 {
			t.Errorf("what is refused: %v", err)
		}
	})
}

// TestWhoIsBehindCatchesUp as soon as somebody tells, without waiting for the next look.
func TestWhoIsBehindCatchesUp(t *testing.T) {
	bubble(t, func(t *testing.T, _ *frail, a, b *instance) {
		apply(t, a, "one", 0, 1)
		if err := b.Await(t.Context(), 1); err != nil || b.InForce() != 1 {
			t.Errorf("in force %d, %v", b.InForce(), err)
		}
		began := time.Now()
		if err := b.Await(t.Context(), 2); !errors.Is(err, policystore.ErrNoVersion) || time.Since(began) > time.Second {
			t.Errorf("what there is not: %v after %v", err, time.Since(began))
		}
	})
}

// TestWhatCantBeReadStaysOut and those in force stay; it is not tried all the time.
func TestWhatCantBeReadStaysOut(t *testing.T) {
	bubble(t, func(t *testing.T, from *frail, a, _ *instance) {
		apply(t, a, "one", 0, 1)
		broken := policystoretest.SetOf(2, textOf("two"))
		broken.Text = broken.Text[1:]
		refused := policystoretest.SetOf(3, textOf("refused"))
		for have, set := range []*policystore.Set{broken, refused} {
			if err := from.Put(t.Context(), int64(have)+1, set); err != nil {
				t.Fatal(err)
			}
			from.mu.Lock()
			before := from.reads
			from.mu.Unlock()
			time.Sleep(4 * time.Second)
			from.mu.Lock()
			if reads := from.reads - before; reads != 2 { // one of each instance
				t.Errorf("version %d was read %d times within four seconds", set.Number, reads)
			}
			from.mu.Unlock()
			if err := a.Ready(); err != nil || len(a.Warnings()) != 1 {
				t.Errorf("ready: %v, warnings %q", err, a.Warnings())
			}
			if err := a.Await(t.Context(), set.Number); err == nil {
				t.Error("it is said to be in force")
			}
		}
		apply(t, a, "four", 3, 4)
		a.want(t, "1 one", "4 four")
		if w := a.Warnings(); len(w) > 0 {
			t.Errorf("warnings %q", w)
		}
	})
}

// TestAwayIsNotReady until it has caught up. A store that answers nonsense is no reason.
func TestAwayIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, from *frail, a, b *instance) {
		apply(t, a, "one", 0, 1)
		from.fail(policystore.ErrUnreadable)
		time.Sleep(time.Minute)
		if err := a.Ready(); err != nil {
			t.Errorf("with a store that nobody can read: %v", err)
		}
		from.fail(store.ErrUnavailable)
		time.Sleep(time.Second)
		if err := a.Ready(); err != nil {
			t.Errorf("away for a second: %v", err)
		}
		time.Sleep(2 * time.Second)
		if a.Ready() == nil {
			t.Error("ready after three seconds without an answer")
		}
		from.fail(nil)
		apply(t, b, "two", 1, 2)
		time.Sleep(time.Second)
		if err := a.Ready(); err != nil || a.InForce() != 2 {
			t.Errorf("back again: %v, version %d in force", err, a.InForce())
		}
	})
}

// TestNumbersOnlyGrow checks that the version in force is put back if the store loses it.
func TestNumbersOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &frail{Memory: new(policystore.Memory)}
		a := newInstance(from)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = a.Run(ctx) })
		apply(t, a, "one", 0, 1)
		apply(t, a, "two", 1, 2)
		from.mu.Lock()
		from.Memory = new(policystore.Memory)
		from.mu.Unlock()
		time.Sleep(time.Second)
		if set, err := from.Read(ctx, 2); err != nil || string(set.Text) != textOf("two") {
			t.Errorf("put back: %q, %v", set.Text, err)
		}
		apply(t, a, "three", 2, 3)
		a.want(t, "1 one", "2 two", "3 three")
		stop()
		running.Wait()
	})
}

// TestVersionWithWhatIsGone holds that a stored version that an earlier build made, and that names a guarantee which is
// gone, is refused with the line to delete, and that a version without that line takes its place.
func TestVersionWithWhatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := new(policystore.Memory)
		text := "policies:\n  - name: p\n    limits: [{algorithm: sliding-log, limit: 10, window: 1h}]\n    guarantee: serial\n"
		set := policystore.Set{Text: []byte(text)}
		set.Number, set.Digest = 1, policystore.DigestOf(set.Text)
		if err := from.Put(t.Context(), 0, &set); err != nil {
			t.Fatal(err)
		}
		i := newInstance(from)
		err := i.Look(t.Context())
		for _, part := range []string{"version 1", ":4: policies[0].guarantee: serial is gone", "delete the line"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v, want %q", err, part)
			}
		}
		i.want(t)
		set.Number, set.Text = 2, []byte(textOf("two"))
		set.Digest = policystore.DigestOf(set.Text)
		if err := from.Put(t.Context(), 1, &set); err != nil {
			t.Fatal(err)
		}
		if err := i.Look(t.Context()); err != nil {
			t.Error(err)
		}
		i.want(t, "2 two")
	})
}
