package check_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/check"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

const (
	tolerance = 200 * time.Millisecond
	day       = 24 * time.Hour
)

// policies are some of each kind, with a limit of 2.
func policies() []history.Policy {
	return []history.Policy{
		{Name: "log", Algorithm: "sliding-log", Limit: 2, Window: 4 * time.Second},
		{Name: "fixed", Algorithm: "fixed-window", Limit: 2, Window: 4 * time.Second},
		{Name: "window", Algorithm: "sliding-window", Limit: 2, Window: 4 * time.Second, Buckets: 4},
		{Name: "tail", Algorithm: "sliding-tail", Limit: 2, Window: 4 * time.Second},
		{Name: "large", Algorithm: "fixed-window", Rows: true, Limit: 128, Window: 4 * time.Second},
		{Name: "conversion", Algorithm: "conversion", Limit: 2, Window: 4 * time.Second, Buckets: 10, MinConversion: 50, Probe: 2 * time.Second},
		{Name: "concurrent", Algorithm: "concurrent", Limit: 2, Window: 4 * time.Second},
		{Name: "unconfirmed", Algorithm: "sliding-log", Limit: 2, Window: 4 * time.Second, Until: "confirmed"},
		{Name: "leaky", Algorithm: "leaky-bucket", Limit: 2, Window: 4 * time.Second},
		{Name: "token", Algorithm: "token-bucket", Limit: 2, Window: 4 * time.Second, Burst: 3},
		{Name: "kept", Algorithm: "sliding-log", Kept: true, Limit: 100, Window: day},
		{Name: "kept-fixed", Algorithm: "fixed-window", Kept: true, Limit: 100, Window: day},
		{Name: "kept-unconfirmed", Algorithm: "sliding-log", Kept: true, Limit: 100, Window: day, Until: "confirmed"},
		{Name: "kept-unconfirmed-fixed", Algorithm: "fixed-window", Kept: true, Limit: 100, Window: day, Until: "confirmed"},
		{Name: "kept-conversion", Algorithm: "conversion", Kept: true, Limit: 3, Window: day, Buckets: 10, MinConversion: 50,
			Probe: 2 * time.Second},
		{Name: "pair", Algorithm: "sliding-log", Limit: 3, Window: day, With: "twin"},
		{Name: "twin", Algorithm: "sliding-log", Limit: 2, Window: day, With: "pair"},
	}
}

// story writes a history. Times are in seconds since an edge of all windows.
type story struct {
	history.History
	calls int
}

func newStory() *story {
	s := &story{History: history.History{Header: history.Header{
		Started: time.UnixMilli(1_800_000_000_000).Truncate(4 * time.Second), Lasts: time.Minute, Processes: 3, Tolerance: tolerance,
		StoreTimeout: time.Second, Policies: policies(),
	}}}
	return s
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// call adds a call of one policy that took a tenth of a second, and returns it.
func (s *story) call(op, policy string, at float64, status int, recorded string, used int64) *history.Call {
	s.calls++
	c := history.Call{
		N: s.calls, Process: s.calls % 3, Op: op, Demands: []history.Demand{{Policy: policy, Identifier: "a"}},
		Called: seconds(at), Returned: seconds(at + 0.1), Answer: history.Answer{Status: status, Recorded: recorded},
	}
	if c.Decided() {
		c.Used, c.Allowed = []int64{used}, status == 200
	}
	s.Calls = append(s.Calls, c)
	return &s.Calls[len(s.Calls)-1]
}

func (s *story) allowed(policy string, at float64, used int64) *history.Call {
	return s.call(history.Take, policy, at, 200, history.Yes, used)
}

func (s *story) denied(policy string, at float64, used int64) *history.Call {
	return s.call(history.Take, policy, at, 429, history.No, used)
}

func (s *story) unknown(policy string, at float64) *history.Call {
	return s.call(history.Take, policy, at, 503, history.Unknown, 0)
}

func (s *story) final(policy string, at float64, used int64) {
	c := s.call(history.Check, policy, at, 200, history.No, used)
	c.Final = true
}

// both adds a take under pair and twin.
func (s *story) both(at float64, status int, recorded string, used ...int64) *history.Call {
	c := s.call(history.Take, "pair", at, status, recorded, 0)
	c.Demands = append(c.Demands, history.Demand{Policy: "twin", Identifier: "a"})
	c.Used = used
	return c
}

// finds fails the test unless the checks find exactly the wanted violations. It adds calls that
// every meaningful run has.
func (s *story) finds(t *testing.T, want ...string) *check.Findings {
	t.Helper()
	s.allowed("window", 900, 1)
	s.allowed("window", 900, 2)
	s.denied("window", 900, 2)
	s.Sort()
	f := check.History(&s.History)
	var got []string
	for _, v := range f.Violations {
		got = append(got, v.Check)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("found %v, want %v: %v", got, want, f.Violations)
	}
	return f
}

// bothWays tests a correct history and one with a violation.
func bothWays(t *testing.T, wrong string, right, bad func(s *story), more ...string) {
	t.Helper()
	t.Run("right", func(t *testing.T) {
		s := newStory()
		right(s)
		s.finds(t)
	})
	t.Run("wrong", func(t *testing.T) {
		s := newStory()
		bad(s)
		s.finds(t, append([]string{wrong}, more...)...)
	})
}

func TestLimitOfALog(t *testing.T) {
	bothWays(t, check.CheckLimit, func(s *story) {
		s.allowed("log", 0, 1)
		s.allowed("log", 1, 2)
		s.allowed("log", 3.95, 2) // it may be dated 4.02, when the first is 4 s old
	}, func(s *story) {
		s.allowed("log", 0, 1)
		s.allowed("log", 1, 2)
		s.allowed("log", 3.85, 2)
	})
}

func TestLimitOfFixedWindows(t *testing.T) {
	bothWays(t, check.CheckLimit, func(s *story) {
		s.allowed("fixed", 1, 1)
		s.allowed("fixed", 2, 2)
		s.allowed("fixed", 3.75, 1) // it may be dated in the next window
		s.allowed("fixed", 8.1, 1)  // and this unit in the previous one
		s.allowed("fixed", 9, 1)
		s.allowed("fixed", 10, 2)
	}, func(s *story) {
		s.allowed("fixed", 1, 1)
		s.allowed("fixed", 2, 2)
		s.allowed("fixed", 3.6, 1)
	})
}

// Four adjacent buckets of a second count together, wherever they begin.
func TestLimitOfASlidingWindowBetweenEdges(t *testing.T) {
	bothWays(t, check.CheckLimit, func(s *story) {
		s.allowed("window", 2.5, 1)
		s.allowed("window", 3.5, 2)
		s.allowed("window", 6.5, 2) // the bucket from 2 s on is forgotten at 6 s
	}, func(s *story) {
		s.allowed("window", 2.5, 1)
		s.allowed("window", 3.5, 2)
		s.allowed("window", 5.5, 2)
	})
}

func TestLimitOfATail(t *testing.T) {
	bothWays(t, check.CheckLimit, func(s *story) {
		s.allowed("tail", 1, 1)
		s.allowed("tail", 2, 2)
		s.allowed("tail", 6, 2)
		s.allowed("tail", 7.5, 2)
	}, func(s *story) {
		s.allowed("tail", 1, 1)
		s.allowed("tail", 2, 2)
		s.allowed("tail", 5, 2)
		s.allowed("tail", 5.5, 3) // beside one unit of the window and a share of the previous window
	})
}

func TestLimitOfBuckets(t *testing.T) {
	for policy, burst := range map[string]int{"leaky": 2, "token": 3} {
		bothWays(t, check.CheckLimit, func(s *story) {
			for i := range burst {
				s.allowed(policy, 1, int64(i+1))
			}
			s.allowed(policy, 2.6, int64(burst)) // one drains in 2 s, or 0.4 s earlier
		}, func(s *story) {
			for i := range burst {
				s.allowed(policy, 1, int64(i+1))
			}
			s.allowed(policy, 2.3, int64(burst))
		}, check.CheckSerial)
	}
}

// Units of records, and units that admitted no caller, are not admissions.
func TestLimitIsAboutTakes(t *testing.T) {
	s := newStory()
	for range 3 {
		s.call(history.Record, "log", 1, 200, history.Yes, 1)
		s.unknown("log", 2)
	}
	s.finds(t)
}

func TestSerialBucket(t *testing.T) {
	bothWays(t, check.CheckSerial, func(s *story) {
		s.allowed("token", 1, 1)
		s.allowed("token", 1.2, 2)
		s.allowed("token", 1.4, 3)
		s.denied("token", 1.8, 3)
		s.unknown("token", 3)
		s.denied("token", 3.5, 3) // because of the unit in doubt
	}, func(s *story) {
		s.allowed("token", 1, 1)
		s.allowed("token", 1.2, 2)
		s.allowed("token", 1.4, 2)
	})
}

// A clock may be off by the tolerance: units that drain within it may count or not.
func TestSerialAllowsForClocks(t *testing.T) {
	for at, wrong := range map[float64][]string{
		1.9: nil, 2.3: nil, 1.3: {check.CheckSerial, check.CheckLimit}, 3.3: {check.CheckSerial, check.CheckDenied},
	} {
		s := newStory()
		s.allowed("leaky", 0, 1)
		s.allowed("leaky", 0, 2)
		if at < 2 {
			s.allowed("leaky", at, 2)
		} else {
			s.denied("leaky", at, 2)
		}
		f := check.History(&s.History)
		for _, w := range wrong {
			if f.Of(w) == 0 {
				t.Errorf("at %v s: %s found nothing: %v", at, w, f.Violations)
			}
		}
		if wrong == nil && f.Of(check.CheckSerial)+f.Of(check.CheckDenied)+f.Of(check.CheckLimit) > 0 {
			t.Errorf("at %v s: found %v", at, f.Violations)
		}
	}
}

func TestAcknowledgedUnitsAreKept(t *testing.T) {
	bothWays(t, check.CheckLost, func(s *story) {
		s.call(history.Record, "kept", 1, 200, history.Yes, 1)
		s.allowed("kept", 2, 2)
		s.unknown("kept", 3)
		s.final("kept", 60, 2)
		s.final("kept", 60, 3)
	}, func(s *story) {
		s.call(history.Record, "kept", 1, 200, history.Yes, 1)
		s.allowed("kept", 2, 2)
		s.unknown("kept", 3)
		s.final("kept", 60, 1)
	})
}

// keyed makes the call the first of its idempotency key.
func keyed(c *history.Call) *history.Call {
	c.Key, c.Of, c.Receipt = "k", c.N, "r"
	return c
}

func TestRepetitionsCountOnce(t *testing.T) {
	repeat := func(s *story) {
		first := keyed(s.unknown("kept", 1)).N
		for at := range 3 {
			again := keyed(s.allowed("kept", 2+float64(at), 1))
			again.Of, again.Replayed = first, at > 0
		}
	}
	bothWays(t, check.CheckDouble, func(s *story) {
		repeat(s)
		s.final("kept", 60, 1)
	}, func(s *story) {
		repeat(s)
		s.final("kept", 60, 2)
	})
	s := newStory()
	keyed(s.allowed("kept", 1, 1))
	again := keyed(s.allowed("kept", 2, 1))
	again.Of, again.Receipt = again.N-1, "another"
	s.final("kept", 60, 1)
	s.finds(t, check.CheckAnswer)
}

func TestReservationsCountOnce(t *testing.T) {
	settle := func(s *story, times int) {
		held := s.call(history.Check, "kept", 1, 200, history.No, 1)
		held.Reserve = 10 * time.Second
		n := held.N
		for range times {
			settled := s.call(history.Record, "kept", 3, 200, history.Yes, 1)
			settled.Of, settled.Settles = n, true
		}
	}
	bothWays(t, check.CheckDouble, func(s *story) {
		settle(s, 2)
		s.final("kept", 60, 1)
	}, func(s *story) {
		settle(s, 2)
		s.final("kept", 60, 2)
	})
	bothWays(t, check.CheckDouble, func(s *story) { // a reservation that is not settled ends
		settle(s, 0)
		s.final("kept", 60, 0)
	}, func(s *story) {
		settle(s, 0)
		s.final("kept", 60, 1)
	})
	more := func(s *story) {
		settle(s, 2)
		for i := range s.Calls {
			if c := &s.Calls[i]; c.Settles {
				c.Cost = 2
			}
		}
	}
	bothWays(t, check.CheckLost, func(s *story) { // at a higher cost than is held
		more(s)
		s.final("kept", 60, 2)
	}, func(s *story) {
		more(s)
		s.final("kept", 60, 1)
	})
	bothWays(t, check.CheckLost, func(s *story) {
		settle(s, 1)
		s.final("kept", 60, 1)
	}, func(s *story) {
		settle(s, 1)
		s.final("kept", 60, 0)
	})
}

// No more units count than were asked for, even if the process that was asked died.
func TestUnitsOfDeadProcesses(t *testing.T) {
	dies := func(s *story, policy string, used int64) {
		for i := range 4 {
			s.allowed(policy, float64(i), int64(i+1))
		}
		process := s.Calls[len(s.Calls)-1].Process
		for i := range s.Calls {
			s.Calls[i].Process = process
		}
		died := history.Span{From: seconds(5), Until: seconds(6)}
		s.Faults = append(s.Faults, history.Fault{Kind: history.ProcessKill, Target: process, Span: died})
		s.final(policy, 60, used)
	}
	for _, policy := range []string{"kept", "kept-fixed"} {
		bothWays(t, check.CheckDouble, func(s *story) { dies(s, policy, 4) }, func(s *story) { dies(s, policy, 5) })
	}
}

func TestPairsCountTogether(t *testing.T) {
	bothWays(t, check.CheckHalf, func(s *story) {
		s.both(1, 200, history.Yes, 1, 1)
		s.both(2, 503, history.Unknown)
		s.final("pair", 60, 2)
		s.final("twin", 60, 2)
	}, func(s *story) {
		s.both(1, 200, history.Yes, 1, 1)
		s.both(2, 503, history.Unknown)
		s.final("pair", 60, 1)
		s.final("twin", 60, 2)
	})
	for name, doubt := range map[string]struct {
		peers bool
		other int     // 1: a process other than the one that is asked
		at    float64 // when it is killed
		want  []string
	}{
		"the process that is asked":           {false, 0, 2.1, nil},
		"it dies soon after":                  {false, 0, 5, nil},
		"the owner of a key":                  {true, 1, 2.1, nil},
		"another process after the call":      {true, 1, 5, []string{check.CheckHalf}},
		"another process where none is owner": {false, 1, 2.1, []string{check.CheckHalf}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.Header.Peers = doubt.peers
			c := s.both(2, 0, history.Unknown)
			died := history.Span{From: seconds(doubt.at), Until: seconds(doubt.at + 1)}
			s.Faults = append(s.Faults, history.Fault{Kind: history.ProcessKill, Target: c.Process + doubt.other, Span: died})
			s.final("pair", 60, 0)
			s.final("twin", 60, 1)
			s.finds(t, doubt.want...)
		})
	}
}

func TestDeniedThoughThereWasRoom(t *testing.T) {
	for _, policy := range []string{"leaky", "token"} {
		bothWays(t, check.CheckDenied, func(s *story) {
			s.allowed(policy, 1, 1)
			s.unknown(policy, 1)
			s.unknown(policy, 1)
			s.denied(policy, 1.5, 2)
		}, func(s *story) {
			s.allowed(policy, 1, 1)
			s.denied(policy, 2.5, 2)
		}, check.CheckSerial)
	}
	s := newStory() // permitted now and then, and counted
	s.allowed("log", 1, 1)
	s.denied("log", 1.5, 2)
	s.both(1, 429, history.No, 0, 0)
	f := s.finds(t)
	if f.WronglyDenied[check.KindLog] != 1 || f.DeniedOf[check.KindLog] != 1 || f.WronglyDenied[check.KindSeveral] != 1 {
		t.Errorf("counted %v of %v", f.WronglyDenied, f.DeniedOf)
	}
	s = newStory()
	for range 128 {
		s.allowed("large", 4, 1)
	}
	s.denied("large", 5, 128)
	s.denied("large", 9, 128) // in the next window
	if f = s.finds(t); f.WronglyDenied[check.KindLarge] != 1 || f.DeniedOf[check.KindLarge] != 2 {
		t.Errorf("counted %v of %v", f.WronglyDenied, f.DeniedOf)
	}
	s = newStory()
	for i := range 200 {
		s.denied("log", float64(i), 2)
		s.allowed("fixed", float64(4*i), 1)
	}
	s.finds(t, check.CheckDenied)
}

// A frozen owner may later count a call that the process that was asked gave up: until a
// store timeout after it continues, and only if keys have owners.
func TestFrozenOwnersCountLate(t *testing.T) {
	story := func(peers bool, kind string, deniedAt float64) *story {
		s := newStory()
		s.Header.Peers = peers
		s.Faults = []history.Fault{{Kind: kind, Target: 1, Span: history.Span{From: seconds(1), Until: seconds(5)}}}
		for range 2 {
			s.unknown("leaky", 3).Process = 0
		}
		s.denied("leaky", deniedAt, 2)
		return s
	}
	story(true, history.ProcessPause, 7.5).finds(t)
	story(true, history.PeersHeld, 7.5).finds(t)
	wrong := []string{check.CheckDenied, check.CheckSerial}
	story(true, history.ProcessPause, 12).finds(t, wrong...)
	story(true, history.PeersCut, 7.5).finds(t, wrong...)
	story(true, history.ProcessKill, 7.5).finds(t, wrong...)
	story(false, history.ProcessPause, 7.5).finds(t, wrong...)
}

func TestAnswersComeInTime(t *testing.T) {
	bothWays(t, check.CheckLate, func(s *story) {
		s.allowed("log", 1, 1).Returned = seconds(5)
		late := s.allowed("log", 20, 1)
		late.Returned = seconds(35)
		s.Faults = []history.Fault{{Kind: history.ProcessPause, Target: late.Process, Span: history.Span{From: seconds(20), Until: seconds(33)}}}
		s.allowed("log", 50, 1).Returned = seconds(60)
		s.Stalls = []history.Span{{From: seconds(51), Until: seconds(57)}}
	}, func(s *story) {
		s.allowed("log", 1, 1).Returned = seconds(6.5)
	})
}

func TestImpossibleAnswers(t *testing.T) {
	s := newStory()
	s.call(history.Take, "log", 1, 500, history.Unknown, 0)
	s.finds(t, check.CheckAnswer)
}

func TestServiceIsBack(t *testing.T) {
	outage := func(s *story, until float64) *check.Findings {
		for at := 0.0; at < 100; at += 0.2 {
			if at < until {
				s.call(history.Take, "fixed", at, 503, history.No, 0)
			} else {
				s.call(history.Check, "fixed", at, 200, history.No, 0)
			}
		}
		s.Whole = []history.Span{{From: seconds(10), Until: seconds(100)}}
		return check.History(&s.History)
	}
	f := outage(newStory(), 25)
	if f.Recovery < seconds(13) || f.Recovery > seconds(16) || f.Of(check.CheckRecovery) > 0 {
		t.Errorf("recovered after %v", f.Recovery)
	}
	if f = outage(newStory(), 5); f.Recovery != 0 {
		t.Errorf("never failed, but recovered after %v", f.Recovery)
	}
	if f = outage(newStory(), 45); f.Of(check.CheckRecovery) != 1 {
		t.Errorf("recovered after %v, without a violation", f.Recovery)
	}
	if f = outage(newStory(), 100); f.Of(check.CheckRecovery) != 1 {
		t.Errorf("recovered after %v, without a violation", f.Recovery)
	}
}

// Calls of a process that is cut off from its peers are soon decided again, while the cut lasts.
func TestServiceIsBackDuringACut(t *testing.T) {
	cut := func(s *story, paused, until float64) *check.Findings {
		for at := 0.0; at < 60; at += 0.1 {
			if at > 20 && at < until {
				s.call(history.Take, "fixed", at, 503, history.No, 0)
			} else {
				s.call(history.Check, "fixed", at, 200, history.No, 0)
			}
		}
		s.Faults = []history.Fault{
			{Kind: history.NodeKill, Span: history.Span{From: seconds(10), Until: seconds(35)}},
			{Kind: history.NodePause, Span: history.Span{From: seconds(18), Until: seconds(paused)}},
			{Kind: history.PeersHeld, Span: history.Span{From: seconds(20), Until: seconds(40)}},
		}
		return check.History(&s.History)
	}
	if f := cut(newStory(), 18.1, 25); f.Of(check.CheckCut) != 0 || f.Cuts != 1 || f.Cut < seconds(2) || f.Cut > seconds(4) {
		t.Errorf("recovered after %v: %v", f.Cut, f.Violations)
	}
	if f := cut(newStory(), 18.1, 32); f.Of(check.CheckCut) != 1 {
		t.Errorf("recovered after %v, without a violation", f.Cut)
	}
	if f := cut(newStory(), 32, 40); f.Of(check.CheckCut) != 0 || f.Cuts != 0 {
		t.Errorf("a node was frozen for most of the cut: %v", f.Violations)
	}
	s := newStory()
	s.Owners = &history.OwnersTest{Wrong: "no owners"}
	s.finds(t, check.CheckCut)
}

func TestClockTests(t *testing.T) {
	s := newStory()
	s.Clocks = []history.ClockTest{{Beyond: "refuse", Ahead: 5 * time.Second, Wrong: "it went on"}, {Beyond: "warn"}}
	s.finds(t, check.CheckClock)
}

func TestRunWithoutDecisionsIsReported(t *testing.T) {
	s := newStory()
	if f := check.History(&s.History); f.Of(check.CheckEmpty) != 1 {
		t.Errorf("%v", f.Violations)
	}
}

func TestReport(t *testing.T) {
	s := newStory()
	s.Header.Offsets = []time.Duration{tolerance, -tolerance}
	s.Faults = []history.Fault{{Kind: history.NodeKill}, {Kind: history.NodeKill}}
	s.Clocks = []history.ClockTest{{Beyond: "refuse", Noticed: 2 * time.Second}}
	for range 3 {
		s.allowed("log", 1, 1)
	}
	f := check.History(&s.History)
	report := check.Report(&s.History, f)
	for _, want := range []string{"node killed 2", "3, 200ms -200ms 200ms", "1, of 1 keys", "VIOLATION limit: log/a", "refused after 2s"} {
		if !strings.Contains(report, want) {
			t.Errorf("no %q in\n%s", want, report)
		}
	}
	var table check.Table
	table.Add(&s.History, f)
	table.Add(&s.History, f)
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	for _, line := range lines {
		if strings.Count(line, "|") != 4 {
			t.Errorf("want two columns beside the names: %s", line)
		}
	}
	if len(lines) < 10 || !strings.HasPrefix(lines[0], "| seed | 0 | 0 |") || !strings.HasPrefix(lines[1], "|---|") {
		t.Errorf("not a table:\n%v", &table)
	}
}
