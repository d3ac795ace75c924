package embedded_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// wallClock is a clock that can be set, as that of a machine: the time that passes by its
// monotonic clock stays what it is.
type wallClock struct{ ahead atomic.Int64 }

func (c *wallClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// now returns what the clock says, with what the monotonic clock does, which the time within a
// bubble lacks: nobody but the system makes such a time otherwise.
func (c *wallClock) now() (t time.Time) {
	const hasMonotonic, since1885 = 1 << 63, 2_682_288_000 // in seconds, until the Unix epoch
	passed := time.Now()
	says := passed.Add(time.Duration(c.ahead.Load()))
	made := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	made.wall = hasMonotonic | uint64(says.Unix()+since1885)<<30 | uint64(says.Nanosecond())
	made.ext = passed.UnixNano()
	made.loc = time.UTC
	if !t.Equal(says) || t.Sub(t.Add(-time.Second)) != time.Second {
		panic("times are made otherwise by this version of Go")
	}
	return t
}

// machine is a process with a clock that can be set, and a disk.
type machine struct {
	t        *testing.T
	clock    wallClock
	disk     *memory // nil: what it counts is in memory alone
	policies []policy.Policy

	store  *embedded.Store
	engine *limiter.Engine
	stop   func()
}

func newMachine(t *testing.T, disk *memory, policies ...policy.Policy) *machine {
	m := &machine{t: t, disk: disk, policies: policies, stop: func() {}}
	m.start()
	return m
}

// start starts the process, once more if it runs.
func (m *machine) start() {
	m.t.Helper()
	m.stop()
	if m.disk == nil {
		m.store = embedded.New(&embedded.Options{Now: m.clock.now})
	} else {
		m.store = open(m.t, m.disk, embedded.Options{Now: m.clock.now})
	}
	m.engine = limiter.New(m.store, &limiter.Options{Now: m.clock.now, Feed: m.store})
	if err := m.engine.SetPolicies(m.policies); err != nil {
		m.t.Fatal(err)
	}
	if err := m.engine.CatchUp(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	ofEngine, ofStore := run(m.t, m.engine.Run), run(m.t, m.store.Run)
	m.stop = func() { ofEngine(); ofStore() }
}

// setBack sets the clock right, which is ahead, while the process runs or, if it has a disk,
// while it does not.
func (m *machine) setBack() {
	m.t.Helper()
	if m.disk == nil {
		m.clock.set(0)
		return
	}
	m.stop()
	m.stop = func() {}
	m.clock.set(0)
	m.start()
}

func (m *machine) do(op count.Op, policy string, cost int64) limiter.Answer {
	m.t.Helper()
	return m.call(&limiter.Call{Op: op, Demands: []limiter.Demand{{Policy: policy, Identifier: "1", Cost: cost}}})
}

func (m *machine) call(c *limiter.Call) limiter.Answer {
	m.t.Helper()
	a, err := m.engine.Do(m.t.Context(), c)
	if err != nil {
		m.t.Fatal(err)
	}
	return a
}

func (m *machine) used(policy string) int64 {
	m.t.Helper()
	return m.do(count.OpCheck, policy, 1).Used
}

// admitted returns how many of n takes pass.
func (m *machine) admitted(policy string, n int) (admitted int) {
	m.t.Helper()
	for range n {
		if m.do(count.OpTake, policy, 1).Allowed {
			admitted++
		}
	}
	return admitted
}

// eachMachine runs test on a machine whose process goes on while its clock is set, and on one
// whose process is started anew, which has a disk.
func eachMachine(t *testing.T, policies []policy.Policy, test func(*testing.T, *machine)) {
	for name, disk := range map[string]*memory{"in memory": nil, "on disk": new(memory)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t, disk, policies...)
				test(t, m)
				m.stop()
			})
		})
	}
}

const clockLimit = 10

// perMinute returns a policy of each algorithm with ten units a minute, and a quota of a day.
func perMinute() (policies []policy.Policy) {
	for _, algorithm := range policy.Algorithms() {
		p := policyOf(algorithm, clockLimit, time.Minute)
		p.Name = algorithm
		policies = append(policies, p)
	}
	day := policyOf("fixed-window", clockLimit, 0)
	day.Name, day.Limits[0].Calendar = "day", policy.CalendarDay
	return append(policies, day)
}

// longestWait is the longest that a full key of p has anybody wait for a unit, and for all.
func longestWait(p *policy.Policy) (retry, reset time.Duration) {
	switch p.Name {
	case "day":
		return 24 * time.Hour, 24 * time.Hour
	case "sliding-tail": // a full window fades in the next one
		return 2 * time.Minute, 2 * time.Minute
	}
	return time.Minute, time.Minute
}

// What was counted by a clock that was ahead, by hours or by days, counts as of now once it is
// right: nothing is admitted at once, nobody waits for longer than a window, and then all is as
// ever.
func TestWhatIsDatedAheadCountsAsOfNow(t *testing.T) {
	for _, ahead := range []time.Duration{30 * time.Second, time.Hour, 40 * 24 * time.Hour} {
		eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
			m.clock.set(ahead)
			m.start()
			for i := range m.policies {
				if got := m.admitted(m.policies[i].Name, 2*clockLimit); got != clockLimit {
					t.Fatalf("%s: %d of %d pass by the wrong clock", m.policies[i].Name, got, clockLimit)
				}
			}
			m.setBack()
			began := time.Now()
			for i := range m.policies {
				p := &m.policies[i]
				a := m.do(count.OpTake, p.Name, 1)
				if retry, reset := longestWait(p); a.Allowed || a.Used != clockLimit || a.RetryAfter > retry || a.ResetAfter > reset {
					t.Errorf("%v ahead, %s: %+v", ahead, p.Name, a.Verdict)
				}
			}
			for i := range m.policies {
				p := &m.policies[i]
				a := m.do(count.OpCheck, p.Name, clockLimit)
				if p.Name == "day" { // it comes last, and what runs beside has nothing to do with it
					m.stop()
				}
				time.Sleep(a.RetryAfter)
				if got := m.admitted(p.Name, 2*clockLimit); got != clockLimit {
					t.Errorf("%v ahead, %s: %d of %d pass %v later", ahead, p.Name, got, clockLimit, time.Since(began))
				}
			}
		})
	}
}

// Keys that are in part used by a clock that was ahead fill no further by that, and empty in their
// time. Who only looks has them empty as well.
func TestHalfFullKeysThatAreDatedAheadEmpty(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		for i := range m.policies {
			m.admitted(m.policies[i].Name, clockLimit/2)
		}
		m.setBack()
		for i := range m.policies {
			if used := m.used(m.policies[i].Name); used != clockLimit/2 {
				t.Errorf("%s: %d are used, want %d", m.policies[i].Name, used, clockLimit/2)
			}
		}
		for range 5 { // who is denied all the time, too
			time.Sleep(25 * time.Second)
			for i := range m.policies {
				m.do(count.OpTake, m.policies[i].Name, clockLimit)
			}
		}
		for i := range m.policies {
			if name := m.policies[i].Name; name != "day" && m.used(name) != clockLimit {
				t.Errorf("%s: %d are used two windows later, want the %d that have passed since", name, m.used(name), clockLimit)
			}
		}
	})
}

// Each time that a clock jumps it may admit a limit, of which all count once it is right.
func TestClockThatJumpsToAndFro(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		for _, ahead := range []time.Duration{0, 26 * time.Hour, 0, -26 * time.Hour, 0, 52 * time.Hour, 26 * time.Hour} {
			m.clock.set(ahead)
			if m.disk != nil {
				m.start()
			}
			for i := range m.policies {
				if got := m.admitted(m.policies[i].Name, 2*clockLimit); got > clockLimit {
					t.Errorf("%s: %d pass at once", m.policies[i].Name, got)
				}
			}
			time.Sleep(time.Second)
		}
		m.setBack()
		for i := range m.policies {
			p := &m.policies[i]
			a := m.do(count.OpTake, p.Name, 1)
			if retry, reset := longestWait(p); a.Allowed || a.RetryAfter > retry || a.ResetAfter > reset {
				t.Errorf("%s: %+v", p.Name, a.Verdict)
			}
		}
	})
}

// A process that was started by a clock which was ahead forgets nothing that is dated by the right
// one.
func TestClockThatIsSetBackMakesNothingExpire(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		m.start()
		m.clock.set(0)
		p := policyOf("sliding-log", 1, 10*time.Minute)
		m.policies = append(m.policies, p)
		if err := m.engine.SetPolicies(m.policies); err != nil {
			t.Fatal(err)
		}
		if got := m.admitted("p", 1); got != 1 {
			t.Fatal(got)
		}
		time.Sleep(5 * time.Minute) // every shard is swept
		if got := m.admitted("p", 1); got != 0 {
			t.Error("what was counted five minutes ago is forgotten")
		}
	})
}

// Keys that were used while the clock was a year ahead leave the memory in their time.
func TestKeysThatAreDatedAheadExpire(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(365 * 24 * time.Hour)
		time.Sleep(time.Second)
		for i := range m.policies {
			m.admitted(m.policies[i].Name, 1)
		}
		time.Sleep(time.Second)
		m.setBack()
		time.Sleep(5 * time.Minute)
		if got := m.store.Len(); got > 2 { // the day's, and the secret of receipts
			t.Errorf("%d keys are left", got)
		}
	})
}

// Resets by a clock that was ahead, and by the right one after it.
func TestResetBesideAClockThatIsSetBack(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		for i := range m.policies {
			name := m.policies[i].Name
			m.admitted(name, 3)
			must(t, m.engine.Reset(t.Context(), name, "1"))
			m.admitted(name, clockLimit)
		}
		m.setBack()
		for i := range m.policies {
			p := &m.policies[i]
			a := m.do(count.OpTake, p.Name, 1)
			if retry, reset := longestWait(p); a.Allowed || a.Used != clockLimit || a.RetryAfter > retry || a.ResetAfter > reset {
				t.Errorf("%s: %+v after a reset by the wrong clock", p.Name, a.Verdict)
			}
		}
		m.clock.set(time.Hour)
		m.clock.set(0)
		for i := range m.policies {
			name := m.policies[i].Name
			must(t, m.engine.Reset(t.Context(), name, "1"))
			if got := m.admitted(name, 2*clockLimit); got != clockLimit {
				t.Errorf("%s: %d of %d pass after a reset by the right clock", name, got, clockLimit)
			}
		}
	})
}

// What is dated ahead when it is reset is forgotten, though nobody asked for it before.
func TestResetOfWhatIsDatedAhead(t *testing.T) {
	for _, before := range []bool{false, true} { // there was a reset by the wrong clock, too
		eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
			m.clock.set(time.Hour)
			for i := range m.policies {
				if before {
					must(t, m.engine.Reset(t.Context(), m.policies[i].Name, "1"))
				}
				m.admitted(m.policies[i].Name, clockLimit)
			}
			m.setBack()
			for i := range m.policies {
				name := m.policies[i].Name
				must(t, m.engine.Reset(t.Context(), name, "1"))
				if used := m.used(name); used != 0 {
					t.Errorf("%s: %d are used after a reset", name, used)
				}
			}
		})
	}
}

// Refunds of what is dated ahead give back no more than was taken.
func TestRefundsOfWhatIsDatedAhead(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		receipts := make(map[string]string)
		for i := range m.policies {
			name := m.policies[i].Name
			m.admitted(name, clockLimit-1)
			receipts[name] = m.do(count.OpTake, name, 1).Receipt
		}
		m.setBack()
		for i := range m.policies {
			name := m.policies[i].Name
			m.used(name)
			must(t, m.engine.Refund(t.Context(), receipts[name]))
			want := 1
			if l := m.policies[i].Limits[0]; l.InCell() && l.Algorithm != policy.Conversion.Name { // nobody knows how much of a bucket has drained
				want = 0
			}
			if got := m.admitted(name, clockLimit); got != want {
				t.Errorf("%s: %d pass after the refund of one, want %d", name, got, want)
			}
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
