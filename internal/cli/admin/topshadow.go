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
	shadowsEvery = 10 * time.Second // as the page asks: the server asks all instances
	shadowsMost  = 20               // policies that are asked for, likewise
)

// shadowTable is what the shadows of a server's policies would have denied, on all instances, as it was told last.
type shadowTable struct {
	asked    time.Time
	policies []shadows
	err      error // of asking; nil: policies are whole
}

// refresh asks anew, if that was not done a moment ago.
func (t *shadowTable) refresh(ctx context.Context, client *remote.Client) {
	if now := time.Now(); now.Sub(t.asked) >= shadowsEvery {
		t.asked = now
		t.policies, t.err = askShadows(ctx, client)
	}
}

// askShadows asks for each policy that has shadows, all at once: one whose instances do not answer takes a while.
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

// shadowed is a policy, as a server lists it.
type shadowed struct {
	Name   string
	Mode   string
	Limits []struct{ Shadow bool }
}

// any reports whether the policy, or a limit of it, is in shadow.
func (p *shadowed) any() bool {
	return p.Mode == "shadow" || p.Mode == "enforce" && slices.ContainsFunc(p.Limits, func(l struct{ Shadow bool }) bool { return l.Shadow })
}

// table has a row for each limit, and notes what can't be judged and whose calls are missing.
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

// overTime draws what would have been denied in each of the latest hours, the last of which is now's.
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
