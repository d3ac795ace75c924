package embedded_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// clone returns a disk with what m holds now.
func (m *memory) clone() *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &memory{records: maps.Clone(m.records)}
}

// crash kills the process, and starts another one after a while with what was on disk.
func (m *machine) crash(after time.Duration) {
	m.t.Helper()
	m.die()
	time.Sleep(after)
	m.start()
}

// onDisk runs test on a machine with a disk and policies of windows of an hour.
func onDisk(t *testing.T, test func(*testing.T, *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, new(memory), holdPolicies()...)
		test(t, m)
		m.stop()
	})
}

// holdPolicies returns a policy of each algorithm whose windows last for hours.
func holdPolicies() (policies []policy.Policy) {
	policies = perMinute()
	for i := range policies[:len(policies)-1] {
		policies[i].Limits[0].Window = 12 * time.Hour
	}
	return policies
}

// eachUsed compares what is used of every policy.
func (m *machine) eachUsed(when string, want int64) {
	m.t.Helper()
	for i := range m.policies {
		if name := m.policies[i].Name; m.used(name) != want {
			m.t.Errorf("%s, %s: %d are used, want %d", when, name, m.used(name), want)
		}
	}
}

// A process that dies leaves its reservations to the one that comes after it: they hold until they
// are over, and free what they held, also where that was while there was no process.
func TestReservationsOfAProcessThatDied(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 10 * time.Minute, 3 * time.Hour} {
		onDisk(t, func(t *testing.T, m *machine) {
			for i := range m.policies {
				m.held(m.policies[i].Name)
			}
			time.Sleep(2 * time.Second)
			m.crash(away)
			if away < 5*time.Minute {
				m.eachUsed("before its end", 3)
				time.Sleep(5 * time.Minute)
			}
			time.Sleep(time.Second)
			m.eachUsed(fmt.Sprintf("after its end, %v away", away), 0)
		})
	}
}

// A reservation that was recorded stays counted, whenever its process dies and comes back.
func TestRecordedReservationsOfAProcessThatDied(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 10 * time.Minute, 3 * time.Hour} {
		onDisk(t, func(t *testing.T, m *machine) {
			reservations := make(map[string]string)
			for i := range m.policies {
				reservations[m.policies[i].Name] = m.held(m.policies[i].Name).Reservation
			}
			for _, reservation := range reservations {
				m.call(&limiter.Call{Op: count.OpRecord, Reservation: reservation})
			}
			time.Sleep(2 * time.Second)
			m.crash(away)
			time.Sleep(5*time.Minute + time.Second)
			for i := range m.policies {
				want := int64(3)
				if name := m.policies[i].Name; away > time.Hour && (name == "leaky-bucket" || name == "token-bucket") {
					want = 1 // the rest has drained
				}
				if name := m.policies[i].Name; m.used(name) != want {
					t.Errorf("%v away, %s: %d are used, want %d", away, name, m.used(name), want)
				}
			}
		})
	}
}

// A reservation that is over frees its units once, whenever its process dies, and however often the
// next ones do.
func TestReservationsAreGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := new(memory)
		m := newMachine(t, disk, holdPolicies()...)
		var saves []*memory // what was on disk after each
		disk.saved = func(records map[string]embedded.Record) { saves = append(saves, &memory{records: maps.Clone(records)}) }
		for i := range m.policies {
			m.held(m.policies[i].Name)
			m.do(count.OpTake, m.policies[i].Name, 4)
		}
		time.Sleep(5*time.Minute - 20*time.Millisecond)
		for range 100 { // saves at its end
			time.Sleep(time.Millisecond)
			m.do(count.OpTake, m.policies[0].Name, 1)
		}
		time.Sleep(3 * time.Minute)
		m.stop()
		if len(saves) < 3 {
			t.Fatalf("%d saves", len(saves))
		}
		for n, save := range saves {
			m.stop, m.disk = func() {}, save
			for range 3 {
				m.crash(0)
				time.Sleep(3 * time.Second)
			}
			for i := range m.policies[1:] {
				name := m.policies[1+i].Name
				if used := m.used(name); used != 4 {
					t.Errorf("save %d of %d, %s: %d are used, want 4", n, len(saves), name, used)
				}
			}
			m.stop()
		}
	})
}

// What was held under limits that are others after the restart is not taken from what these count.
func TestReservationsUnderLimitsThatAreOthersSince(t *testing.T) {
	onDisk(t, func(t *testing.T, m *machine) {
		for i := range m.policies {
			m.held(m.policies[i].Name)
		}
		time.Sleep(2 * time.Second)
		m.policies = perMinute()
		for i := range m.policies[:len(m.policies)-1] {
			m.policies[i].Limits[0].Window = 6 * time.Hour
		}
		m.crash(0)
		for i := range m.policies {
			m.do(count.OpTake, m.policies[i].Name, 4)
		}
		time.Sleep(5*time.Minute + time.Second)
		for i := range m.policies {
			if name := m.policies[i].Name; m.used(name) != 4 {
				t.Errorf("%s: %d are used, want 4", name, m.used(name))
			}
		}
	})
}
