package embedded_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// held makes a check that holds three units for five minutes.
func (m *machine) held(policy string) limiter.Answer {
	m.t.Helper()
	return m.call(&limiter.Call{
		Op: count.OpCheck, Demands: []limiter.Demand{{Policy: policy, Identifier: "1", Cost: 3}}, Reserve: 5 * time.Minute,
	})
}

// eachHold is eachMachine for reservations of windows that last longer.
func eachHold(t *testing.T, test func(*testing.T, *machine)) {
	policies := perMinute()
	for i := range policies[:len(policies)-1] {
		policies[i].Limits[0].Window = time.Hour
	}
	eachMachine(t, policies, test)
}

// die ends the process, if it has a disk, without what an ordinary stop does.
func (m *machine) die() {
	if m.disk == nil {
		return
	}
	disk := m.disk.clone()
	m.stop()
	m.stop, m.disk = func() {}, disk
}

// A reservation that is dated ahead is over in its time, and frees what it holds.
func TestReservationThatIsDatedAheadEnds(t *testing.T) {
	eachHold(t, func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		for i := range m.policies {
			m.held(m.policies[i].Name)
		}
		time.Sleep(2 * time.Second) // it is saved
		m.die()
		m.setBack()
		for i := range m.policies {
			if used := m.used(m.policies[i].Name); used != 3 {
				t.Errorf("%s: %d units are held, want 3", m.policies[i].Name, used)
			}
		}
		time.Sleep(5*time.Minute + time.Second)
		for i := range m.policies {
			if name := m.policies[i].Name; m.used(name) != 0 {
				t.Errorf("%s: %d units are held after its end", name, m.used(name))
			}
		}
	})
}

// A reservation that is dated ahead and recorded counts once, whether it is over by then or not.
func TestReservationThatIsDatedAheadIsSettledOnce(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 4 * time.Minute, 6 * time.Minute, 59 * time.Minute} {
		eachHold(t, func(t *testing.T, m *machine) {
			m.clock.set(30 * time.Minute)
			reservations := make(map[string]string)
			for i := range m.policies {
				reservations[m.policies[i].Name] = m.held(m.policies[i].Name).Reservation
			}
			m.setBack()
			time.Sleep(after)
			for name, reservation := range reservations {
				m.used(name)
				for range 2 {
					m.call(&limiter.Call{Op: count.OpRecord, Reservation: reservation})
				}
				most := int64(3)
				if name == "leaky-bucket" || name == "token-bucket" { // what drained of the hold is given back no sooner than it would be
					most = 4
				}
				if used := m.used(name); used < 3 || used > most {
					t.Errorf("%s: %d units are used after %v, want 3", name, used, after)
				}
			}
		})
	}
}

// A reservation that is dated ahead and was reset gives nothing back.
func TestReservationThatIsDatedAheadAndWasReset(t *testing.T) {
	eachHold(t, func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		for i := range m.policies {
			name := m.policies[i].Name
			m.held(name)
			must(t, m.engine.Reset(t.Context(), name, "1"))
			m.do(count.OpTake, name, 4)
		}
		time.Sleep(2 * time.Second)
		m.die()
		m.setBack()
		time.Sleep(5*time.Minute + 2*time.Second)
		for i := range m.policies {
			if name := m.policies[i].Name; m.used(name) != 4 {
				t.Errorf("%s: %d are used after its end, want 4", name, m.used(name))
			}
		}
	})
}
