package schedule_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

const lasts = 5 * time.Minute

func policies() []history.Policy { return schedule.Policies(time.Now()) }

func TestTheSameSeedDrawsTheSame(t *testing.T) {
	calls := schedule.Calls(7, policies(), 3, lasts)
	nodes, processes := schedule.Faults(7, 3, 3, lasts)
	if !reflect.DeepEqual(calls, schedule.Calls(7, policies(), 3, lasts)) {
		t.Error("the calls from one seed differ")
	}
	againNodes, againProcesses := schedule.Faults(7, 3, 3, lasts)
	if !reflect.DeepEqual(nodes, againNodes) || !reflect.DeepEqual(processes, againProcesses) {
		t.Error("the faults from one seed differ")
	}
	if other, _ := schedule.Faults(8, 3, 3, lasts); reflect.DeepEqual(nodes, other) {
		t.Error("two seeds give the same schedule")
	}
}

// Two cores can run three nodes and some processes under this many calls.
func TestCallsArePaced(t *testing.T) {
	calls := schedule.Calls(1, policies(), 3, lasts)
	if a := float64(len(calls)) / lasts.Seconds(); a < 60 || a > 180 {
		t.Errorf("%.0f calls a second", a)
	}
	asked := make(map[string]int)
	for i, c := range calls {
		if i > 0 && c.At < calls[i-1].At || c.At < 0 || c.At > lasts+time.Second {
			t.Errorf("call %d at %v", i, c.At)
		}
		for _, d := range c.Demands {
			asked[d.Policy]++
		}
	}
	for _, p := range policies() {
		if asked[p.Name] < 100 {
			t.Errorf("%s is asked %d times", p.Name, asked[p.Name])
		}
	}
}

// Receipts are confirmed and refunded, soon and late, at one process and at two.
func TestReceiptsComeBack(t *testing.T) {
	ends, late, released, over := make(map[string]int), make(map[string]int), 0, 0
	h := history.Header{Policies: policies()}
	for _, c := range schedule.Calls(1, h.Policies, 3, lasts) {
		p := h.Policy(c.Demands[0].Policy)
		if len(c.Ends) > 0 && (!p.Confirms() && !p.Releases() || c.Op == history.Check) && c.Reserve == 0 {
			t.Errorf("%s of %s: %v", c.Op, p.Name, c.Ends)
		}
		if c.Reserve > 0 && len(c.Ends) > 0 {
			released++
		}
		if c.Settle > 0 && c.Cost > 1 {
			over++
		}
		ends[strings.Join(c.Ends, " and ")]++
		if c.EndWait > p.Window {
			late[p.Name]++
		}
	}
	for _, what := range []string{"confirm", "refund", "confirm and confirm", "confirm and refund", "refund and refund"} {
		if ends[what] < 100 {
			t.Errorf("%s: %d", what, ends[what])
		}
	}
	if released < 10 || over < 10 {
		t.Errorf("%d reservations are released, and %d settled at more than the held units", released, over)
	}
	if late["unconfirmed"] < 10 || late["conversion"] < 10 {
		t.Errorf("after the window: %v", late)
	}
}

func TestRatelimitdReadsThePolicies(t *testing.T) {
	read, err := policyfile.Parse("policies.yaml", schedule.File(policies()))
	if err != nil {
		t.Fatal(err)
	}
	counted := make(map[string]bool)
	for i, p := range policies() {
		l := read[i].Limits[0].WithDefaults()
		if read[i].Name != p.Name || l.Algorithm != p.Algorithm || l.Limit != p.Limit || l.Window != p.Window || l.Capacity() != p.Capacity() ||
			string(l.Until) != p.Until || p.Converts() && l.MinConversion != p.MinConversion || l.Probe != p.Probe ||
			(read[i].Counting == policy.CountingRows) != p.Rows {
			t.Errorf("%+v was read as %+v", p, read[i])
		}
		counted[p.Algorithm] = true
	}
	for _, a := range policy.Algorithms() {
		if !counted[a] {
			t.Errorf("no policy counts by %s", a)
		}
	}
}

// No kept window ends during a run.
func TestKeptWindowsEndLater(t *testing.T) {
	for hour := range 24 * 60 {
		now := time.Date(2026, 1, 1, hour, 59, 0, 0, time.UTC)
		for _, p := range schedule.Policies(now) {
			if p.Kept && p.Algorithm == "fixed-window" && now.Truncate(time.Second).UnixMilli()/p.Window.Milliseconds() !=
				now.Add(3*time.Hour).UnixMilli()/p.Window.Milliseconds() {
				t.Errorf("at %v a window of %v ends within hours", now, p.Window)
			}
		}
	}
}

// Kept units do not drain during a run, and only conversions deny them.
func TestKeptPoliciesForgetNothing(t *testing.T) {
	for _, p := range policies() {
		if p.Kept && !p.Converts() && (p.Capacity() < 1000 || p.InBucket() && p.Window/time.Duration(p.Limit) < 12*time.Hour) {
			t.Errorf("%+v", p)
		}
	}
}

func TestFaultsComeOneAfterTheOther(t *testing.T) {
	seen := make(map[string]int)
	for seed := range uint64(50) {
		nodes, processes := schedule.Faults(seed, 3, 4, lasts)
		for _, faults := range [][]schedule.Fault{nodes, processes} {
			ends := time.Duration(0)
			for _, f := range faults {
				if f.At <= ends || f.Lasts <= 0 || f.At+f.Lasts >= lasts || f.Target < 0 || f.Target > 3 {
					t.Errorf("seed %d: %+v after %v", seed, f, ends)
				}
				if f.Kind == history.MajorityPause && f.Lasts > 4*time.Second {
					t.Errorf("seed %d: %+v", seed, f)
				}
				ends = f.At + f.Lasts
				seen[f.Kind]++
			}
		}
	}
	for _, kind := range history.Kinds() {
		if seen[kind] < 50 {
			t.Errorf("%s: %d times in 50 runs", kind, seen[kind])
		}
	}
}

// Connections between processes are disturbed only in runs with owners.
func TestOnlyPeersAreDisturbed(t *testing.T) {
	for seed := range uint64(30) {
		_, processes := schedule.Faults(seed, 3, 3, lasts)
		disturbed := slices.ContainsFunc(processes, func(f schedule.Fault) bool { return history.OfPeers(f.Kind) })
		if disturbed != schedule.Peers(seed) {
			t.Errorf("seed %d: peers %t, disturbed %t", seed, schedule.Peers(seed), disturbed)
		}
	}
	if !schedule.Peers(1) {
		t.Error("the most frequent run has no peers")
	}
}

func TestFileEndsWithALine(t *testing.T) {
	if file := schedule.File(policies()); !bytes.HasSuffix(file, []byte("]\n")) {
		t.Errorf("%s", file)
	}
}
