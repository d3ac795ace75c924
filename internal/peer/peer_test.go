package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// plain has no authentication.
var plain = insecure.NewCredentials()

// one is all members but this one.
type one struct {
	member  cluster.Member
	noticed atomic.Int64
	reach   atomic.Int64
}

func (o *one) Notice(view int64)                         { o.noticed.Store(view) }
func (o *one) Reach(_ cluster.ID, how cluster.Reach)     { o.reach.Store(int64(how)) }
func (*one) Others() ([]cluster.Member, <-chan struct{}) { return nil, nil }

func (o *one) is(how cluster.Reach) bool { return cluster.Reach(o.reach.Load()) == how }

// deciderFunc decides as it says.
type deciderFunc func(ctx context.Context, c *demand.Charge) error

func (f deciderFunc) DecideForPeer(ctx context.Context, c *demand.Charge) error { return f(ctx, c) }

// sms is a plan of two limits.
var sms = func() *demand.Plan {
	limits := []policy.Limit{
		{Name: "hour", Algorithm: "sliding-log", Limit: 10, Window: time.Hour},
		{Name: "minute", Algorithm: "sliding-log", Limit: 9, Window: time.Minute},
	}
	p := demand.NewPlan(policy.Policy{Name: "sms", Limits: limits}, demand.Settings{}.WithDefaults(), false)
	p.Definition.Print = 5
	return p
}()

// deny denies c.
func deny(_ context.Context, c *demand.Charge) error {
	sms.Begin(&c.Decision)
	return nil
}

// views is what an instance knows of views.
type views struct {
	self  cluster.ID
	view  int64
	taken []cluster.Handed
}

func (*views) Known() int64 { return 9 }

func (v *views) Self() cluster.ID { return v.self }

func (v *views) Take(view int64, slots []cluster.Handed) {
	v.view, v.taken = view, append(v.taken, slots...)
}

// serve runs a server that decides by f, and returns its address and what stops it.
func serve(t *testing.T, address string, creds credentials.TransportCredentials, f deciderFunc) (string, func()) {
	t.Helper()
	return serveAs(t, address, creds, new(views), f)
}

// serveAs is serve for an instance that knows of views what known does.
func serveAs(
	t *testing.T, address string, creds credentials.TransportCredentials, known *views, f deciderFunc,
) (string, func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := NewServer(listener, creds, f, known, nil)
	go func() { done <- server.Run(ctx) }()
	end := sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return listener.Addr().String(), end
}

// connect runs a pool whose calls all go to address.
func connect(t *testing.T, address string, creds credentials.TransportCredentials) (*Pool, *one) {
	t.Helper()
	members := &one{member: cluster.Member{ID: "owner", Address: address}}
	pool := NewPool(members, creds, slog.New(slog.DiscardHandler))
	run(t, pool)
	return pool, members
}

// run runs pool until the test ends.
func run(t *testing.T, pool *Pool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// handOn has the one member decide c.
func handOn(ctx context.Context, pool *Pool, c *demand.Charge) error {
	l := pool.link(pool.members.(*one).member)
	if l == nil {
		return errGone
	}
	return l.Decide(ctx, c)
}

// await asks until the pool hands on, and returns what that gives.
func await(t *testing.T, pool *Pool, c *demand.Charge) error {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := handOn(ctx, pool, c)
		cancel()
		if !errors.Is(err, errGone) {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatal("nothing was handed on")
	return nil
}

func keyOf(n byte) store.Key { return store.KeyFrom([store.KeySize]byte{n, 1, 2}) }

func take(n byte) *demand.Charge {
	return &demand.Charge{
		Target: demand.Target{Plan: sms, Key: keyOf(n), OldKeys: []store.Key{keyOf(n + 1)}}, Definition: &sms.Definition,
		Op: count.OpTake, Cost: 3, View: 7, Prepare: store.EventID{n, 4}, AtOnce: true,
	}
}

func TestCallsAndAnswersArriveWhole(t *testing.T) {
	var want count.Decision
	verdicts := []count.Verdict{{Allowed: true, Used: 3, Remaining: 7, ResetAfter: time.Hour}, {RetryAfter: count.Never, Used: 9}}
	for i, limits := 0, sms.Begin(&want); i < len(limits); i++ {
		limits[i].Verdict = verdicts[i]
	}
	want.Conclude()
	want.Allowed, want.WouldAllow, want.Remembered, want.Recorded = true, true, true, count.RecordedYes
	want.Entry = count.Entry{ID: store.EventID{1, 2, 3}, At: 1_700_000_000_123, Epoch: 5, Cost: 3}
	var got demand.Charge
	var left time.Duration
	address, _ := serve(t, "127.0.0.1:0", plain, func(ctx context.Context, c *demand.Charge) error {
		deadline, _ := ctx.Deadline()
		got, left, c.Decision, c.Steady = *c, time.Until(deadline), want, time.Second
		return nil
	})
	pool, members := connect(t, address, plain)
	c, sent := take(1), take(1)
	if err := await(t, pool, c); err != nil || !reflect.DeepEqual(c.Decision, want) || c.Steady != time.Second {
		t.Errorf("the answer is %+v for %v, error %v; want %+v", c.Decision, c.Steady, err, want)
	}
	if sent.Plan = nil; !reflect.DeepEqual(got, *sent) {
		t.Errorf("the owner was asked %+v, want %+v", got, *sent)
	}
	if left <= 0 || left > 2*time.Second {
		t.Errorf("the owner has %v, want at most the caller's 2s", left)
	}
	if members.noticed.Load() != 9 || !members.is(cluster.Reached) {
		t.Errorf("view %d is known, and the owner is reached %t, want its 9 and true", members.noticed.Load(), members.is(cluster.Reached))
	}
}

// TestErrorsSayWhetherUnitsCount holds that an asker learns of a failure what the owner knows.
func TestErrorsSayWhetherUnitsCount(t *testing.T) {
	var fail atomic.Pointer[error]
	address, _ := serve(t, "127.0.0.1:0", plain, func(context.Context, *demand.Charge) error {
		return *fail.Load()
	})
	pool, _ := connect(t, address, plain)
	for _, test := range []struct {
		err      error
		is       error
		recorded count.Recorded
	}{
		{&count.StoreError{Recorded: count.RecordedUnknown, Err: store.ErrUnavailable}, store.ErrUnavailable, count.RecordedUnknown},
		{&count.StoreError{Recorded: count.RecordedNo, Err: store.ErrOverloaded}, store.ErrOverloaded, count.RecordedNo},
		{fmt.Errorf("%w: the clock", store.ErrUnavailable), store.ErrUnavailable, count.RecordedNo},
		{&count.StoreError{Recorded: count.RecordedNo, Err: prepared.ErrInDoubt}, prepared.ErrInDoubt, count.RecordedNo},
	} {
		fail.Store(&test.err)
		err := await(t, pool, take(1))
		var failed *count.StoreError
		if !errors.Is(err, test.is) || !errors.As(err, &failed) || failed.Recorded != test.recorded {
			t.Errorf("%v arrives as %v, want %v with recorded %q", test.err, err, test.is, test.recorded)
		}
	}
	refused := fmt.Errorf("%w: another policy", owner.ErrRefused)
	fail.Store(&refused)
	if err := handOn(t.Context(), pool, take(1)); !errors.Is(err, owner.ErrRefused) {
		t.Errorf("what the owner does not decide: %v, want %v", err, owner.ErrRefused)
	}
}

// TestWhatIsToldArrives holds that who needs no answer is heard all the same, and that others are answered then.
func TestWhatIsToldArrives(t *testing.T) {
	heard := make(chan demand.Charge, 8)
	address, _ := serve(t, "127.0.0.1:0", plain, func(ctx context.Context, c *demand.Charge) error {
		heard <- *c
		return deny(ctx, c)
	})
	pool, _ := connect(t, address, plain)
	if err := await(t, pool, take(1)); err != nil {
		t.Fatal(err)
	}
	<-heard
	told := demand.Charge{Target: demand.Target{Key: keyOf(2)}, Op: "commit", Prepare: store.EventID{9}}
	pool.link(pool.members.(*one).member).Tell(&told)
	if got := <-heard; !reflect.DeepEqual(got, told) {
		t.Errorf("the owner is told %+v, want %+v", got, told)
	}
	if err := await(t, pool, take(3)); err != nil {
		t.Errorf("a call after what is told: %v", err)
	}
}

// TestOwnerThatDiesLeavesNobodyWaiting holds that calls which were sent fail at once, and that later
// ones are not handed on, until the owner is back.
func TestOwnerThatDiesLeavesNobodyWaiting(t *testing.T) {
	held := make(chan struct{}, 1)
	address, stop := serve(t, "127.0.0.1:0", plain, func(ctx context.Context, c *demand.Charge) error {
		if c.Cost == 3 {
			return deny(ctx, c)
		}
		held <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	pool, members := connect(t, address, plain)
	if err := await(t, pool, take(1)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		slow := take(2)
		slow.Cost = 1
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		failed <- handOn(ctx, pool, slow)
	}()
	<-held
	began := time.Now()
	stop()
	if err := <-failed; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrNotStored) {
		t.Errorf("a call that was sent fails with %v, want that nobody knows", err)
	}
	if waited := time.Since(began); waited > 10*time.Second {
		t.Errorf("it waited %v", waited)
	}
	for until := time.Now().Add(20 * time.Second); !members.is(cluster.Refused) && time.Now().Before(until); {
		<-time.After(time.Millisecond)
	}
	if err := handOn(t.Context(), pool, take(1)); !errors.Is(err, store.ErrNotStored) {
		t.Errorf("with the owner gone: %v; want that nothing was counted", err)
	}
	serve(t, address, plain, deny)
	if err := await(t, pool, take(1)); err != nil || !members.is(cluster.Reached) {
		t.Errorf("back again, the owner answers %v, reached %t", err, members.is(cluster.Reached))
	}
}

// TestCallsOfTheEndAreAnswered holds that an instance which ends answers the call that it decides, and those that come
// until the others know that it has left.
func TestCallsOfTheEndAreAnswered(t *testing.T) {
	held, goOn := make(chan struct{}), make(chan struct{})
	address, stop := serve(t, "127.0.0.1:0", plain, func(ctx context.Context, c *demand.Charge) error {
		if c.Cost == 1 {
			held <- struct{}{}
			<-goOn
		}
		return deny(ctx, c)
	})
	pool, _ := connect(t, address, plain)
	if err := await(t, pool, take(1)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		slow := take(2)
		slow.Cost = 1
		failed <- handOn(context.Background(), pool, slow)
	}()
	<-held
	ended := make(chan struct{})
	go func() { defer close(ended); stop() }()
	<-time.After(quietBefore / 2)
	if err := handOn(t.Context(), pool, take(3)); err != nil {
		t.Errorf("a call that came while the instance ended: %v", err)
	}
	close(goOn)
	if err := <-failed; err != nil {
		t.Errorf("a call that was being decided: %v", err)
	}
	<-ended
}

func TestManyCallsTravelTogether(t *testing.T) {
	address, _ := serve(t, "127.0.0.1:0", plain, func(_ context.Context, c *demand.Charge) error {
		sms.Begin(&c.Decision)[0].Used = c.Cost
		return nil
	})
	pool, _ := connect(t, address, plain)
	if err := await(t, pool, take(1)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 2000 {
		all.Go(func() {
			c := take(byte(i))
			c.Cost = int64(i + 1)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := handOn(ctx, pool, c); err != nil || c.Decision.Limits()[0].Used != c.Cost {
				t.Errorf("call %d: error %v, answer %+v", i, err, c.Decision)
			}
		})
	}
	all.Wait()
}

func TestPeersShareASecret(t *testing.T) {
	secret := func(s string) credentials.TransportCredentials {
		creds, err := SharedSecret([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	var asked atomic.Int64
	known := secret("correct horse battery")
	address, _ := serve(t, "127.0.0.1:0", known, func(ctx context.Context, c *demand.Charge) error {
		asked.Add(1)
		return deny(ctx, c)
	})
	for name, creds := range map[string]credentials.TransportCredentials{
		"another secret": secret("correct horse batteries"), "no secret": plain,
	} {
		pool, members := connect(t, address, creds)
		for until := time.Now().Add(20 * time.Second); !members.is(cluster.Refused) && time.Now().Before(until); {
			if err := handOn(t.Context(), pool, take(1)); err == nil {
				t.Errorf("%s: a call was decided", name)
			}
			<-time.After(time.Millisecond)
		}
		if !members.is(cluster.Refused) {
			t.Errorf("%s: the connection was not refused", name)
		}
	}
	if asked.Load() != 0 {
		t.Errorf("%d calls were decided for those who do not know the secret", asked.Load())
	}
	pool, _ := connect(t, address, secret("correct horse battery"))
	if err := await(t, pool, take(1)); err != nil || asked.Load() != 1 {
		t.Errorf("with the secret: error %v, %d decided; want one", err, asked.Load())
	}
	if _, err := SharedSecret([]byte("short")); err == nil {
		t.Error("a secret of five bytes is taken")
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	for name, change := range map[string]func(*demand.Charge){
		"an operation that there is not": func(c *demand.Charge) { c.Op = "steal" },
		"a cost of none":                 func(c *demand.Charge) { c.Cost = 0 },
		"a cost beyond any":              func(c *demand.Charge) { c.Cost = policy.MaxCost + 1 },
		"very many keys":                 func(c *demand.Charge) { c.OldKeys = make([]store.Key, maxKeys) },
	} {
		c := take(1)
		change(c)
		if _, err := chargeOf(callOf(c)); !errors.Is(err, owner.ErrRefused) {
			t.Errorf("%s: %v, want %v", name, err, owner.ErrRefused)
		}
	}
	call := callOf(take(1))
	call.Keys[0] = call.Keys[0][1:]
	if _, err := chargeOf(call); !errors.Is(err, owner.ErrRefused) {
		t.Errorf("a short key: %v, want %v", err, owner.ErrRefused)
	}
	c := take(1)
	sms.Begin(&c.Decision)
	c.Decision.Recorded = count.RecordedYes
	answer := answerOf(1, c, nil)
	answer.Entry.Id = answer.Entry.GetId()[1:]
	if err := read(answer, c); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a short id: %v, want %v", err, store.ErrUnavailable)
	}
	answer.Entry, answer.Verdicts = nil, answer.GetVerdicts()[1:]
	if err := read(answer, c); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("one verdict for two limits: %v, want %v", err, store.ErrUnavailable)
	}
	answer.Recorded = "perhaps"
	if err := read(answer, c); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("recorded perhaps: %v, want %v", err, store.ErrUnavailable)
	}
}
