package admin

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

const (
	shadowsEvery = 10 * time.Second // as on the page, since the server asks all instances
	shadowsMost  = 20               // policies in the table, as on the page
)

// shadowTable has the last reports on the shadows of a server's policies, on all instances.
type shadowTable struct {
	asked    time.Time
	policies []shadows
	err      error // of the last request; nil: policies are complete
}

// refresh asks the server again, unless it did so less than shadowsEvery ago.
func (t *shadowTable) refresh(ctx context.Context, client *remote.Client) {
	if now := time.Now(); now.Sub(t.asked) >= shadowsEvery {
		t.asked = now
		t.policies, t.err = askShadows(ctx, client)
	}
}

// askShadows asks for all policies that have shadows, concurrently, since one whose instances do not answer takes a
// while.
func askShadows(ctx context.Context, client *remote.Client) ([]shadows, error) {
	var known struct{ Policies []shadowed }
	if _, err := client.Get(ctx, "policies", &known); err != nil {
		return nil, err
	}
	known.Policies = slices.DeleteFunc(known.Policies, func(p shadowed) bool { return !p.any() })
	known.Policies = known.Policies[:min(len(known.Policies), shadowsMost)]
	answers, errs := make([]shadows, len(known.Policies)), make([]error, len(known.Policies))
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			_, errs[i] = client.Get(ctx, "policies/"+url.PathEscape(known.Policies[i].Name)+"/shadow", &answers[i])
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// shadowed is a policy in a server's list.
type shadowed struct {
	Name   string
	Mode   string
	Limits []struct{ Shadow bool }
}

// any reports whether the policy, or a limit of it, is in shadow.
func (p *shadowed) any() bool {
	return p.Mode == "shadow" || p.Mode == "enforce" && slices.ContainsFunc(p.Limits, func(l struct{ Shadow bool }) bool { return l.Shadow })
}

// table returns a table with a row for each limit, and notes on policies that can't be judged and instances that did
// not answer.
func (t *shadowTable) table(now time.Time) *table {
	of := &table{titles: []string{"SHADOW OF", "LIMIT", "CALLS", "WOULD DENY", "SHARE", "CALLERS", "LAST 24 HOURS"}, texts: 2}
	if t.err != nil {
		of.notes = []string{fmt.Sprintf("shadows are not known: %v", t.err)}
		return of
	}
	for i := range t.policies {
		p := &t.policies[i]
		for _, l := range p.Limits {
			of.rows = append(of.rows, []string{
				remote.Printable(p.Policy), remote.Printable(l.Name), fmt.Sprint(p.Calls), fmt.Sprint(l.WouldDeny),
				percent(float64(l.WouldDeny), float64(p.Calls)), callers(l.Callers), l.overTime(now),
			})
		}
		if p.Confirmed != nil && *p.Confirmed == 0 && p.Calls > 0 {
			of.notes = append(of.notes, p.confirmedNote())
		}
		for _, u := range p.Unanswered {
			line := fmt.Sprintf("missing: the calls of %s at %s: %s",
				remote.Printable(u.Instance), remote.Printable(u.Address), remote.Printable(u.Reason))
			if !slices.Contains(of.notes, line) {
				of.notes = append(of.notes, line)
			}
		}
	}
	of.all = len(of.rows)
	return of
}

// overTime draws a bar for the calls that would have been denied in each of the latest hours up to now.
func (l *shadowLimit) overTime(now time.Time) string {
	bars := []rune("▁▂▃▄▅▆▇█")
	first, most := now.Add(-(hoursShown-1)*time.Hour).Truncate(time.Hour), int64(1)
	for _, h := range l.Hours {
		most = max(most, h.WouldDeny)
	}
	drawn := []rune(strings.Repeat("·", hoursShown))
	for _, h := range l.Hours {
		hour, some := int(h.Start.Sub(first)/time.Hour), h.WouldDeny > 0
		if some && !h.Start.Before(first) && hour < hoursShown {
			drawn[hour] = bars[(int64(len(bars))*h.WouldDeny-1)/most]
		}
	}
	return string(drawn)
}
