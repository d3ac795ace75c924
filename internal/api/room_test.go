package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// wide returns a policy with as many limits as possible, with long names and numbers.
func wide(name string, most int64) policy.Policy {
	p := policy.Policy{Name: name + strings.Repeat("n", 60-len(name))}
	for i := range policy.MaxLimits {
		p.Limits = append(p.Limits, policy.Limit{
			Name: fmt.Sprintf("%s%02d", strings.Repeat("l", 58), i), Algorithm: "fixed-window",
			Limit: most - int64(i), Window: policy.MaxWindow - time.Duration(i)*time.Millisecond,
		})
	}
	return p
}

// TestRoomIsEnough holds that the reserved room is enough for the answer and its parts.
func TestRoomIsEnough(t *testing.T) {
	policies := []policy.Policy{tail, wide("wide", policy.MaxLimit), wide("over", policy.MaxLimits)}
	slots := policy.Policy{Name: "slots", Limits: []policy.Limit{{Algorithm: "concurrent", Limit: 100, Window: time.Minute}}}
	f := newFront(t, nil, append(policies, smsSend, slots)...)
	for name, test := range map[string]struct {
		op       string
		policies []string
	}{
		"one":          {"take", []string{"api"}},
		"several":      {"take", []string{"api", "sms-send"}},
		"under way":    {"take", []string{"slots"}},
		"beside":       {"take", []string{"slots", "api"}},
		"wide":         {"take", []string{policies[1].Name}},
		"wide, denied": {"take", []string{policies[2].Name}},
		"all":          {"take", []string{"api", "sms-send", policies[1].Name, policies[2].Name}},
		"a check":      {"check", []string{"api", policies[1].Name}},
		"unknown":      {"check", []string{"nowhere"}},
	} {
		const calls, each = 20, 4 // so many demands on each policy
		var ops []string
		for range calls {
			var demands []string
			for _, p := range test.policies {
				for j := range each {
					demands = append(demands, fmt.Sprintf(`{"policy":%q,"identifier":"%s %d"}`, p, name, j))
				}
			}
			ops = append(ops, fmt.Sprintf(`{"op":%q,"demands":[%s]}`, test.op, strings.Join(demands, ",")))
		}
		body := operationsOf(ops...)
		m := &scratch{share: f.server.memory.Share(), caller: anybody()}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/batch", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if _, err := decodeBatch(r, m); err != nil {
			t.Fatal(err)
		}
		demands := calls * each * len(test.policies)
		decisions := demands * int(unsafe.Sizeof(count.Decision{})+unsafe.Sizeof(limiter.Demand{}))
		for _, p := range test.policies {
			if known, ok := f.server.engine.Policy(p); ok {
				decisions += calls * each * len(known.Limits) * int(unsafe.Sizeof(count.LimitDecision{}))
			}
		}
		takes := calls*int(unsafe.Sizeof(operation{})) + decisions + len(bodyOf(t, f.do(http.MethodPost, "/v1/batch", body)))
		if reserved := int(m.share.Reserved()); reserved < takes || reserved > 3*takes {
			t.Errorf("%s: %d bytes are reserved, %d are taken", name, m.share.Reserved(), takes)
		}
	}
}

// TestAnswersAreBounded holds that a small request with a long answer is refused before anything is done if there is no
// room for it, that calls of one demand are served, and that an answer holds no more than its size.
func TestAnswersAreBounded(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) webServer) {
		metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "up 1\n")
		})
		b := besiegeWith(t, 100, &Options{Metrics: metrics}, by, nil)
		policies := []policy.Policy{tail}
		for i := range policy.MaxDemands {
			policies = append(policies, wide(string(rune('a'+i)), 1000))
		}
		if err := b.server.engine.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		var demands []string
		for _, p := range policies[1:] {
			demands = append(demands, fmt.Sprintf(`{"policy":%q,"identifier":"x"}`, p.Name))
		}
		several := `{"demands":[` + strings.Join(demands, ",") + `]}`
		batch := operationsOf(`{"op":"take",`+several[1:], `{"op":"check",`+several[1:])
		requests := []struct{ method, path, body, recorded string }{
			{http.MethodPost, "/v1/take", several, "no"},
			{http.MethodPost, "/v1/batch", batch, "no"},
			{http.MethodGet, "/v1/policies", "", ""},
			{http.MethodGet, "/metrics", "", ""},
		}
		others := b.server.takeAll()
		for _, r := range requests {
			p := readProblem(t, b.do(r.method, r.path, r.body))
			if p.Status != http.StatusServiceUnavailable || p.Recorded != r.recorded || !strings.Contains(p.Detail, "answers of others") {
				t.Errorf("%s: %+v", r.path, p)
			}
		}
		if got := b.reached[BoundBodies].Load(); got != int64(len(requests)) {
			t.Errorf("%d were refused, want %d", got, len(requests))
		}
		if res := b.do(http.MethodGet, "/openapi.yaml", ""); res.StatusCode != http.StatusOK {
			t.Errorf("what takes no memory of its own is answered %d", res.StatusCode)
		}
		b.serves("honest")
		for i, p := range policies {
			res := b.do(http.MethodPost, "/v1/take", fmt.Sprintf(`{"policy":%q,"identifier":"x"}`, p.Name))
			if body := bodyOf(t, res); res.StatusCode != http.StatusOK || !strings.Contains(body, `"used":1,`) {
				t.Errorf("policy %d: %d, %.200s; want the first use", i, res.StatusCode, body)
			}
		}
		others.Release()
		for _, r := range requests {
			if res := b.do(r.method, r.path, r.body); res.StatusCode != http.StatusOK {
				t.Errorf("%s: %d with room for it", r.path, res.StatusCode)
			}
		}
		waitUntil(t, "nothing is taken", func() bool { return b.server.memory.Taken() == 0 })
	})
}
