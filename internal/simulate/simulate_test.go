package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/simulate"
	"github.com/ratelimitd/ratelimitd/internal/simulate/report"
)

// policies are one by address, which counts networks too, and one by account.
const policies = `policies:
  - name: address
    normalize: ip
    limits: [{name: l, algorithm: fixed-window, limit: 3, window: 1h}]
    derive: [{policy: network, from: {ip-prefix: 24}}]
  - name: network
    limits: [{name: l, algorithm: fixed-window, limit: 5, window: 1h}]
  - name: account
    normalize: lowercase
    limits: [{name: l, algorithm: fixed-window, limit: 2, window: 1h}]
`

const columns = `time,ip,user,policy,units
0,192.0.2.1,Ann,address,1
1,192.0.2.1,ann,account,2
2,192.0.2.1,ANN,address,3
3,192.0.2.2,,address,1
4,192.0.2.2,,none,1
5,no address,Ann,address,1
6,192.0.2.3,Bob,address,x
7,192.0.2.3,Bob,address,4
8,192.0.2.3,Bob,address,0
`

// run simulates, and returns of each policy how many requests there were, how many were denied, and how
// many callers there are.
func run(t *testing.T, opts simulate.Options) (*report.Report, string) {
	t.Helper()
	var err error
	if opts.Policies, err = policyfile.Parse("policies.yaml", []byte(policies)); err != nil {
		t.Fatal(err)
	}
	opts.Logs, opts.Stdin = []string{"-"}, strings.NewReader(columns)
	made, err := simulate.Run(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range made.Policies {
		found = append(found, fmt.Sprintf("%s %d/%d of %d", p.Name, p.Denied, p.Requests, p.Callers))
	}
	return made, strings.Join(found, ", ")
}

// TestWhatLinesAskFor reads the policy, the caller and the units where it is told.
func TestWhatLinesAskFor(t *testing.T) {
	where := func(text string) simulate.Condition {
		c, err := simulate.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, test := range []struct {
		name string
		opts simulate.Options
		want string
		left string
	}{
		{
			"by address", simulate.Options{Asks: []simulate.Ask{{Policy: "address"}}},
			"address 0/8 of 3, network 3/8 of 1", `{"where":0,"no_identifier":0,"no_policy":0,"refused":null}`,
		},
		{
			"by account", simulate.Options{Asks: []simulate.Ask{{Policy: "account", Field: "user"}}},
			"account 3/7 of 2", `{"where":0,"no_identifier":2,"no_policy":0,"refused":null}`,
		},
		{
			"both together", simulate.Options{Asks: []simulate.Ask{{Policy: "address"}, {Policy: "account", Field: "user"}}},
			"account 1/6 of 2, address 0/8 of 3, network 2/8 of 1",
			`{"where":0,"no_identifier":0,"no_policy":0,"refused":null}`,
		},
		{
			"the units too", simulate.Options{Asks: []simulate.Ask{{Policy: "address"}}, Cost: "units"},
			"address 1/6 of 3, network 2/6 of 1",
			`{"where":0,"no_identifier":0,"no_policy":0,"refused":{` +
				`"cost exceeds what the limit can ever hold: cost 4 under limit \"l\" of 3 units":1,` +
				`"invalid request: the cost is not a whole number":1}}`,
		},
		{
			"as the line says", simulate.Options{PolicyField: "policy", Identifier: "user", Where: []simulate.Condition{where("policy!=ad*")}},
			"account 0/1 of 1", `{"where":7,"no_identifier":0,"no_policy":1,"refused":null}`,
		},
	} {
		made, got := run(t, test.opts)
		left, err := json.Marshal(made.LeftOut)
		if err != nil {
			t.Fatal(err)
		}
		text := string(left)
		if got != test.want || text != test.left {
			t.Errorf("%s: %s, left out %s\nwant %s, %s", test.name, got, text, test.want, test.left)
		}
	}
}

// TestConditions are met or not.
func TestConditions(t *testing.T) {
	for text, want := range map[string]int{
		"user=Ann": 1, "user!=Ann": 7, "user=a*": 1, "user=*": 8, "ip=192*2": 2, "ip=*.0.*.1": 3, "ip=*": 8, "ip=1*1*1": 0, "user=": 2,
		"policy=*e*": 7,
	} {
		c, err := simulate.ParseCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		made, _ := run(t, simulate.Options{Asks: []simulate.Ask{{Policy: "network"}}, Where: []simulate.Condition{c}})
		if got := int(made.Lines - made.LeftOut.Where); got != want {
			t.Errorf("%s: %d lines, want %d", text, got, want)
		}
	}
	for _, text := range []string{"", "a", "=a", "!=a"} {
		if _, err := simulate.ParseCondition(text); err == nil {
			t.Errorf("%q is a condition", text)
		}
	}
}

// TestInterrupted ends a simulation soon.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	opts := tailOptions(t, endless())
	opts.Progress = func(_, _, lines int64) {
		if lines > 0 {
			cancel()
		}
	}
	if _, err := simulate.Run(ctx, opts); err == nil || err.Error() != "interrupted" {
		t.Error(err)
	}
}

func tailOptions(tb testing.TB, log io.Reader) *simulate.Options {
	tb.Helper()
	parsed, err := policyfile.Parse("policies.yaml",
		[]byte("policies: [{name: site, limits: [{name: per-minute, algorithm: sliding-tail, limit: 100, window: 1m}]}]\n"))
	if err != nil {
		tb.Fatal(err)
	}
	return &simulate.Options{Policies: parsed, Logs: []string{"-"}, Stdin: log, Reorder: 10 * time.Second}
}

// lines is a log of the combined format: so many lines, a thousand a second, of 50,000 callers, one
// of which has a tenth of all lines.
type lines struct {
	left, made int
	rest       []byte
	state      uint64
}

func endless() io.Reader { return &lines{left: 1 << 62, state: 1} }

func (l *lines) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(l.rest) == 0 {
			if l.left == 0 {
				return n, io.EOF
			}
			l.next()
		}
		c := copy(p[n:], l.rest)
		n, l.rest = n+c, l.rest[c:]
	}
	return n, nil
}

var lineStart = time.Date(2026, 10, 5, 0, 0, 0, 0, time.UTC)

func (l *lines) next() {
	l.left, l.made = l.left-1, l.made+1
	l.state = l.state*6364136223846793005 + 1442695040888963407 // Knuth's
	caller := l.state >> 33 % 50_000
	if l.state>>60 == 0 {
		caller = 0
	}
	at := lineStart.Add(time.Duration(l.made) * time.Millisecond)
	l.rest = fmt.Appendf(l.rest[:0], "10.0.%d.%d - - [%s] \"GET /products/%d?ref=start HTTP/1.1\" 200 512 \"-\" "+
		"\"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\"\n",
		caller>>8, caller&255, at.Format("02/Jan/2006:15:04:05 -0700"), caller%500)
}

// BenchmarkTail simulates one sliding tail over a log that lies in memory, with all that a report
// has. An operation is the whole log.
func BenchmarkTail(b *testing.B) {
	const made = 1_000_000
	log, err := io.ReadAll(&lines{left: made, state: 1})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := simulate.Run(b.Context(), tailOptions(b, bytes.NewReader(log))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(made)*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

// TestConversionsAreJudgedByWhatWasConfirmed counts what a field says was entered; without one, a policy that goes by that
// is not judged, and the report says so.
func TestConversionsAreJudgedByWhatWasConfirmed(t *testing.T) {
	const sends = `policies:
  - name: send
    limits: [{algorithm: sliding-log, limit: 100, window: 1h}]
    normalize: e164
    derive: [{policy: range, from: {prefix: 7}}, {policy: new, from: country, when: denied}]
  - name: range
    limits: [{algorithm: conversion, unconfirmed: 2, min_conversion: 100%, window: 1d}]
  - name: new
    limits: [{algorithm: sliding-log, limit: 1, window: 1h}]
`
	log := "time,phone,entered\n"
	for i := range 9 {
		entered := ""
		if i%3 == 0 {
			entered = "2026-11-02T10:00:00Z"
		}
		log += fmt.Sprintf("%d,+49151123456%d,%s\n", i, i, entered)
	}
	for _, test := range []struct{ confirmed, want, note string }{
		{"entered", "range 6/9", ""},
		{"", "range 0/9", "not judged, as they depend on confirmations: range. Name the field of confirmations with --confirmed"},
	} {
		policies, err := policyfile.Parse("policies.yaml", []byte(sends))
		if err != nil {
			t.Fatal(err)
		}
		made, err := simulate.Run(t.Context(), &simulate.Options{
			Policies: policies, Logs: []string{"-"}, Stdin: strings.NewReader(log), Asks: []simulate.Ask{{Policy: "send", Field: "phone"}},
			Confirmed: test.confirmed,
		})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(made.Notes(), "; "); notes != test.note {
			t.Errorf("by %q: notes %q, want %q", test.confirmed, notes, test.note)
		}
		for _, p := range made.Policies {
			if got := fmt.Sprintf("%s %d/%d", p.Name, p.Denied, p.Requests); p.Name == "range" && got != test.want {
				t.Errorf("by %q: %s, want %s", test.confirmed, got, test.want)
			}
		}
	}
}

// TestLimitsOfLines decides each line by the limit that a field brings, and by the policy's default without one, which the
// report says.
func TestLimitsOfLines(t *testing.T) {
	const byPlan = `policies:
  - name: plan
    limits:
      - {name: asked, algorithm: sliding-log, limit: {from: request, max: 5, default: 1}, window: 1h}
      - {name: day, algorithm: sliding-log, limit: 4, window: 1d}
`
	const fixed = "policies: [{name: plan, limits: [{name: l, algorithm: sliding-log, limit: 2, window: 1h}]}]\n"
	const log = "time,user,limit\n" + "0,ann,3\n1,ann,3\n2,ann,3\n3,ann,3\n" + "4,bob,\n5,bob,-\n" +
		"6,cid,5\n7,cid,5\n8,cid,5\n9,cid,5\n10,cid,5\n" + "11,dan,6\n12,dan,x\n"
	const none = "2 have no limit in the field of --limit: the policy's default holds for them"
	const noNumber = "1 refused, as a server would: invalid request: the limit is not a whole number of at least 1"
	const tooLarge = "1 refused, as a server would: limit: 6 is out of range: use 1 to 5, the policy's max"
	for _, test := range []struct {
		name, policies, against, limit string
		want, notes                    string
	}{
		{
			"by the line", byPlan, "", "limit",
			"3/11; 1 by default in 1h: 2; 4 in 1d: 1, 8 6 4 3 2", none + "; " + noNumber + "; " + tooLarge,
		},
		{
			"by default", byPlan, "", "",
			"9/13; 1 by default in 1h: 9; 4 in 1d: 0, 9 9 9 9 9",
			"decided by the default of a limit that comes with requests: plan. Name the field that has it with --limit",
		},
		{"against the line", fixed, byPlan, "limit", "5/12; 2 in 1h: 5, 8 5 3 1 0; against 3", none + "; " + noNumber},
		{
			"against a number", byPlan, fixed, "limit",
			"3/11; 1 by default in 1h: 2; 4 in 1d: 1, 8 6 4 3 2; against 5", none + "; " + noNumber + "; " + tooLarge,
		},
	} {
		opts := simulate.Options{Identifier: "user", Limit: test.limit, Logs: []string{"-"}, Stdin: strings.NewReader(log)}
		opts.Policies, opts.Against = parsed(t, test.policies), parsed(t, test.against)
		made, err := simulate.Run(t.Context(), &opts)
		if err != nil {
			t.Fatal(err)
		}
		plan := made.Policies[0]
		got := fmt.Sprintf("%d/%d", plan.Denied, plan.Requests)
		for i := range plan.Limits {
			l := &plan.Limits[i]
			if got += fmt.Sprintf("; %s: %d", l.InFile(), l.Denied); len(l.Curve) == 0 {
				continue
			}
			got += ","
			for _, trial := range l.Curve[:5] {
				got += fmt.Sprintf(" %d", trial.Denied)
			}
		}
		if plan.Against != nil {
			got += fmt.Sprintf("; against %d", plan.Against.Denied)
		}
		if notes := strings.Join(made.Notes(), "; "); got != test.want || notes != test.notes {
			t.Errorf("%s: %s (%s)\nwant %s (%s)", test.name, got, notes, test.want, test.notes)
		}
	}
	_, err := simulate.Run(t.Context(), &simulate.Options{Policies: parsed(t, fixed), Limit: "limit"})
	if err == nil || !strings.HasPrefix(err.Error(), "--limit: no policy that lines ask for takes its limit from requests") {
		t.Errorf("where no policy takes one: %v", err)
	}
}

// parsed returns the policies of a file; of an empty one, none.
func parsed(t *testing.T, file string) []policy.Policy {
	t.Helper()
	if file == "" {
		return nil
	}
	policies, err := policyfile.Parse("policies.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return policies
}

// TestConcurrentIsNotJudged checks that a policy with a concurrent limit denies nothing by a log, and that the report
// says why.
func TestConcurrentIsNotJudged(t *testing.T) {
	policies, err := policyfile.Parse("policies.yaml", []byte(`policies:
  - {name: slots, limits: [{algorithm: concurrent, limit: 1, hold: 1h}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	made, err := simulate.Run(t.Context(), &simulate.Options{
		Policies: policies, Logs: []string{"-"}, Stdin: strings.NewReader("time,user\n0,a\n1,a\n2,a\n"), Identifier: "user",
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "not judged, as they bound how many requests are under way, and logs don't say how long one took: slots"
	if notes := made.Notes(); len(notes) != 1 || notes[0] != want || made.Policies[0].Denied > 0 {
		t.Errorf("notes %q, %d denied, want %q and none", notes, made.Policies[0].Denied, want)
	}
}
