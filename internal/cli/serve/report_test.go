//go:build unix

package serve_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

const overshootPath = "/v1/policies/p/overshoot"

// allAnswered reports whether no instance is missing.
func allAnswered(o *overshootOfAllBody) bool { return len(o.Unanswered) == 0 }

// TestOvershootOfAllInstances asks each of three instances, which decide together, how far callers went past a limit on all
// of them, and on one alone.
func TestOvershootOfAllInstances(t *testing.T) {
	all := startMembers(t, 3, "--policies="+clitest.Write(t, "p.yaml",
		"policies: [{name: p, limits: [{algorithm: sliding-log, limit: 2, window: 1h}]}]\n"))
	for i, s := range all {
		for range 3 + i { // 12 in all
			s.TakeOf(t, "p", "+4915112345678")
		}
	}
	for i, s := range all {
		o := await(t, s.URL+overshootPath, allAnswered)
		if o.Scope != "instances" || o.Attempts != 10 || len(o.Instances) != 3 || len(o.Worst) != 1 ||
			o.Worst[0].Attempts != 10 || o.Worst[0].Error != 0 {
			t.Errorf("instance %d: %+v", i, o)
		}
		sum := 0
		for _, of := range o.Instances {
			one := await(t, s.URL+overshootPath+"?instance="+of.Instance[:10], allAnswered)
			sum += one.Attempts
			if one.Scope != "instance" || one.Attempts != of.Attempts || len(one.Instances) != 1 || one.Instances[0].Instance != of.Instance {
				t.Errorf("of %s alone: %+v", of.Instance, one)
			}
		}
		if sum != 10 {
			t.Errorf("instances have %d attempts, each alone", sum)
		}
	}
	if status := all[0].Get(t, overshootPath+"?instance=nobody"); status != http.StatusBadRequest {
		t.Errorf("an instance that there is none of: %d", status)
	}
}

// overshootOfAllBody is an answer of GET /v1/policies/{name}/overshoot, as far as it is looked at here.
type overshootOfAllBody struct {
	Scope     string
	Attempts  int
	Worst     []struct{ Attempts, Error int }
	Instances []struct {
		Instance string
		Attempts int
	}
	Unanswered []ui.Unanswered
}

// await returns what url answers once it is so: a busy instance may not answer another one in time.
func await[T any](t *testing.T, url string, so func(*T) bool) *T {
	t.Helper()
	for late := time.Now().Add(clitest.Patience); ; <-time.After(20 * time.Millisecond) {
		is, text := new(T), clitest.Fetch(t, url)
		if err := json.Unmarshal([]byte(text), is); err == nil && so(is) {
			return is
		}
		if time.Now().After(late) {
			t.Fatal(text)
		}
	}
}

// namedWithin is for how long at most a member may stand still before figures name it: a second until it is not waited for any
// more, and time on a busy machine.
const namedWithin = 5 * time.Second

// TestFiguresOfAllInstances asks each of three processes for the figures of all, and again while one of them stands still, and
// once it is killed: it is named, and the figures of the others stay.
func TestFiguresOfAllInstances(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	flags := onCassandra(t, "--ui", "--peer-listen=127.0.0.1:0", "--log-level=error", "--policies="+clitest.Write(t, "p.yaml",
		"policies: [{name: p, limits: [{algorithm: sliding-log, limit: 2, window: 1h}]}]\n"))
	var all []*process
	for range 3 {
		all = append(all, startProcess(t, flags...))
	}
	for i, p := range all {
		p.awaitMembers(t, 3)
		for range 3 + i { // 12 in all, two of which are allowed
			if status := p.takeOf(t.Context(), "p", "+4915112345678"); status != http.StatusOK && status != http.StatusTooManyRequests {
				t.Fatalf("a take: %d", status)
			}
		}
	}
	for i, p := range all {
		s := await(t, p.url+"/ui/state", func(s *ui.State) bool { return len(s.Worst) == 1 && s.Worst[0].Attempts == 10 })
		if s.Scope != "instances" || s.Decisions.Allowed != 2 || s.Decisions.Denied != 10 || len(s.Instances) != 3 || len(s.Unanswered) != 0 {
			t.Errorf("instance %d: %+v", i, s)
		}
		await(t, p.url+"/ui/history", func(h *ui.History) bool { return deniedIn(h) > 9.5 })
	}
	still := all[2].member(t)
	one := await(t, all[0].url+"/ui/state?instance="+still.Address, func(s *ui.State) bool { return len(s.Instances) == 1 })
	if one.Scope != "instance" || one.Decisions.Denied != 5 || len(one.Instances) != 1 || one.Instances[0].ID != still.ID {
		t.Errorf("of one alone: %+v", one)
	}
	code, stdout, stderr := clitest.Execute(t, nil, "top", "--once", "--server="+all[0].url, "--instance="+still.ID[:8])
	if code != 0 || !strings.Contains(stdout, "last hour   0 allowed, 5 denied") || strings.Contains(stdout, " of 3 instances") {
		t.Errorf("exit code %d, %s, output\n%s", code, stderr, stdout)
	}

	all[2].signal(t, syscall.SIGSTOP)
	all[0].awaitNamed(t, still.ID)
	await(t, all[1].url+overshootPath, func(o *overshootOfAllBody) bool {
		return len(o.Unanswered) == 1 && o.Unanswered[0].Instance == still.ID && len(o.Instances) == 2 && o.Attempts == 5
	})
	code, stdout, stderr = clitest.Execute(t, nil, "top", "--once", "--server="+all[0].url)
	if want := "missing     " + still.ID + ": it did not answer"; code != 0 || !strings.Contains(stdout, " 2 of 3 instances") ||
		!strings.Contains(stdout, want) {
		t.Errorf("exit code %d, %s, output\n%s", code, stderr, stdout)
	}
	all[2].signal(t, syscall.SIGCONT)
	await(t, all[0].url+"/ui/state", func(s *ui.State) bool { return len(s.Instances) == 3 && s.Decisions.Denied == 10 })
	killed := all[2].member(t) // another one if it stood still for longer than a busy machine should make it
	all[2].end(t, syscall.SIGKILL)
	all[0].awaitNamed(t, killed.ID)
}

// deniedIn returns how many denials h has. Its first point is the begin of the second one.
func deniedIn(h *ui.History) (sum float64) {
	for i := 1; i < len(h.Times); i++ {
		sum += h.Denied[i] * float64(h.Times[i]-h.Times[i-1])
	}
	return sum
}

// member returns which member p is.
func (p *process) member(t *testing.T) (self ui.Member) {
	t.Helper()
	await(t, p.url+"/ui/state", func(s *ui.State) bool {
		i := slices.IndexFunc(s.Members.List, func(m ui.Member) bool { return m.Self })
		if i >= 0 {
			self = s.Members.List[i]
		}
		return i >= 0
	})
	return self
}

// awaitNamed holds that p soon names the one instance that does not answer, and has the figures of the others.
func (p *process) awaitNamed(t *testing.T, id string) {
	t.Helper()
	began := time.Now()
	s := await(t, p.url+"/ui/state", func(s *ui.State) bool { return len(s.Unanswered) == 1 && len(s.Instances) == 2 })
	took := time.Since(began)
	t.Logf("it was named after %v", took)
	if u := s.Unanswered[0]; took > namedWithin || u.Instance != id || u.Reason != "it did not answer" || u.Address == "" ||
		s.Decisions.Allowed != 2 || s.Decisions.Denied != 5 {
		t.Errorf("after %v: %+v", took, s)
	}
}
