package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/simulate/accesslog"
	"github.com/ratelimitd/ratelimitd/internal/simulate/replay"
)

// hostile is an identifier that a stranger chose.
const hostile = "</td><script>alert(1)</script>\x1b[31m"

// hostileReport is of one caller under three policies: one that denies, one that blocks, and one
// that is off.
func hostileReport(t *testing.T) *Report {
	t.Helper()
	l := policy.Limit{Algorithm: "sliding-log", Limit: 1, Window: time.Minute}
	policies := []policy.Policy{
		{Name: "denies", Limits: []policy.Limit{l}, Mode: policy.ModeShadow},
		{Name: "blocks", Limits: []policy.Limit{l}, BlockFor: time.Hour},
		{Name: "off", Limits: []policy.Limit{l}, Mode: policy.ModeOff},
	}
	r, err := replay.New(&replay.Options{Policies: policies, Against: policies})
	if err != nil {
		t.Fatal(err)
	}
	for n := range store.Instant(100) {
		for _, p := range policies {
			refused, err := r.Take(1e12+1000*n, []limiter.Demand{{Policy: p.Name, Identifier: hostile}})
			if refused != nil || err != nil {
				t.Fatal(refused, err)
			}
		}
	}
	return New(&r.Result, Report{Logs: []string{hostile}, Lines: 100, Decided: 100, Late: 1, ReorderMS: 1000, Unreadable: 1, Compared: true},
		[]accesslog.Unreadable{{File: hostile, Line: 7, Why: "it is odd", Text: hostile}}, true)
}

// TestNobodyWritesThePage has strangers' text stand as text, on the page and on a terminal.
func TestNobodyWritesThePage(t *testing.T) {
	r := hostileReport(t)
	var page, text bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "<script") || !strings.Contains(page.String(), "&lt;script") {
		t.Errorf("on the page: %s", page.String())
	}
	if strings.Contains(text.String(), "\x1b") {
		t.Errorf("on a terminal: %q", text.String())
	}
}

// TestPlotsAreWellFormed has every plot read as XML.
func TestPlotsAreWellFormed(t *testing.T) {
	var page bytes.Buffer
	if err := hostileReport(t).WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	plots := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page.String(), -1)
	if len(plots) < 10 || strings.Contains(page.String(), "NaN") {
		t.Errorf("%d plots in %s", len(plots), page.String())
	}
	for _, plot := range plots {
		d := xml.NewDecoder(strings.NewReader(plot))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, plot)
			}
		}
	}
}

// TestWhatIsSaid of a policy that blocks, and of one that is off.
func TestWhatIsSaid(t *testing.T) {
	r := hostileReport(t)
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"blocks: 99 of 100 requests denied (99.00 %)", "it is in mode shadow: a server denies none", "block_for",
		"off: 0 of 100 requests denied", "1 out of order by more than 1s", "line 7: it is odd", "denied by both",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("nothing says %q in\n%s", want, text.String())
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := number(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

// TestShadowIsNoDenial has a limit in shadow named as one, and what it would deny kept apart from what is denied.
func TestShadowIsNoDenial(t *testing.T) {
	l := policy.Limit{Name: "now", Algorithm: "sliding-log", Limit: 3, Window: time.Minute}
	next := policy.Limit{Name: "next", Algorithm: "sliding-log", Limit: 1, Window: time.Minute, Shadow: true}
	r, err := replay.New(&replay.Options{Policies: []policy.Policy{{Name: "p", Limits: []policy.Limit{l, next}}}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range store.Instant(4) {
		if _, err := r.Take(1e12+n, []limiter.Demand{{Policy: "p", Identifier: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	made := New(&r.Result, Report{Lines: 4, Decided: 4}, nil, false)
	p := made.Policies[0]
	if p.Denied != 1 || p.Limits[0].Denied != 1 || p.Limits[0].Shadow || p.Limits[1].Denied != 2 || !p.Limits[1].Shadow {
		t.Errorf("%+v", p)
	}
	if limit := p.Limits[1].InFile(); limit != "1 in 1m, in shadow" {
		t.Errorf("in the file: %s", limit)
	}
	if asked, denied := requestsOverTime(p); asked[0] != 4 || denied[0] != 1 {
		t.Errorf("of %d requests %d are drawn as denied", asked, denied)
	}
}
