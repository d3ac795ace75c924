// Package report shows the results of a simulation: as text, as JSON and as a page of HTML.
//
// It does not know how they are found.
package report

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/simulate/accesslog"
	"github.com/ratelimitd/ratelimitd/internal/simulate/replay"
)

// LeftOut counts readable lines that were not decided.
type LeftOut struct {
	Where        int64            `json:"where"`         // they do not meet --where
	NoIdentifier int64            `json:"no_identifier"` // they have no identifier
	NoPolicy     int64            `json:"no_policy"`     // they name an unknown policy
	Refused      map[string]int64 `json:"refused"`       // by the error that a server would answer
}

// maxRefusals is the maximum of errors that are counted apart.
const maxRefusals = 10

// Refuse counts a line that a server would answer with err.
func (l *LeftOut) Refuse(err error) {
	if l.Refused == nil {
		l.Refused = make(map[string]int64)
	}
	text := err.Error()
	if _, known := l.Refused[text]; !known && len(l.Refused) >= maxRefusals {
		text = "for other reasons"
	}
	l.Refused[text]++
}

// Report is the result of a simulation. --json prints it as JSON.
type Report struct {
	Logs       []string               `json:"logs"`
	From       time.Time              `json:"from"`    // of the first line
	To         time.Time              `json:"to"`      // of the last
	Lines      int64                  `json:"lines"`   // readable ones
	Decided    int64                  `json:"decided"` // of these
	LeftOut    LeftOut                `json:"left_out"`
	Unreadable int64                  `json:"unreadable"`
	NoAddress  int64                  `json:"unreadable_no_address"` // unreadable lines without one address that is the client's
	Listed     int64                  `json:"addresses_listed"`      // lines with several addresses, of which the first is the client's
	Forwarded  int64                  `json:"addresses_forwarded"`   // lines with X-Forwarded-For beside the client's address
	Examples   []accesslog.Unreadable `json:"unreadable_examples"`   // their text with --show-identifiers only
	Late       int64                  `json:"late"`                  // lines that were further out of order than ReorderMS
	ReorderMS  int64                  `json:"reorder_ms"`
	BinSeconds int64                  `json:"bin_seconds"`
	Policies   []*Policy              `json:"policies"`
	Compared   bool                   `json:"compared"`           // there are policies to compare with
	Unjudged   []string               `json:"unjudged,omitempty"` // policies that depend on confirmations, which logs don't have
	NoLimit    int64                  `json:"no_limit,omitempty"` // lines without the limit that a policy takes from them
	Defaults   []string               `json:"defaults,omitempty"` // policies that take their limit from lines, if no flag names its field
	Untimed    []string               `json:"untimed,omitempty"`  // policies that depend on requests' ends, which logs don't have
}

// Policy has the outcomes of the events that a policy was asked for.
type Policy struct {
	Name       string     `json:"policy"`
	Mode       string     `json:"mode"`
	Requests   int64      `json:"requests"`
	Callers    int64      `json:"callers"`
	Sampled    bool       `json:"callers_sampled"` // numbers of callers are estimates
	Denied     int64      `json:"denied"`
	Blocked    int64      `json:"blocked"` // denied by block_for
	Refused    int64      `json:"refused"` // denied by countries or number_types
	CallersHit int64      `json:"callers_hit"`
	HitTimes   []HitTimes `json:"callers_by_times_hit"`
	Limits     []Limit    `json:"limits"`
	Worst      []Worst    `json:"worst"`
	WorstOf    string     `json:"worst_note,omitempty"`
	Against    *Against   `json:"against,omitempty"`
	OverTime   []Bin      `json:"over_time"`
}

// HitTimes is a number of callers with a number of denials.
type HitTimes struct {
	AtLeast int64 `json:"at_least"`
	Callers int64 `json:"callers"`
}

// Limit has the outcomes of one limit.
type Limit struct {
	Name      string           `json:"limit"`
	Algorithm string           `json:"algorithm"`
	Number    int64            `json:"number"`
	Max       int64            `json:"max,omitempty"` // the largest that a request may bring; no other number is tried then
	By        map[string]int64 `json:"by,omitempty"`  // the numbers of some identifiers; no other number is tried then
	Window    string           `json:"window"`
	Shadow    bool             `json:"shadow,omitempty"` // it denies nothing; the counts are of events that it would deny and the others admit
	Denied    int64            `json:"denied"`
	Spares    []Spare          `json:"spares"`
	Curve     []replay.Trial   `json:"curve"`
}

// InFile describes the number of l in the file.
func (l *Limit) InFile() string {
	by, shadow := "", ""
	if len(l.By) > 0 || l.Max > 0 {
		by = " by default"
	}
	if l.Shadow {
		shadow = ", in shadow"
	}
	return fmt.Sprintf("%s%s in %s%s", number(l.Number), by, l.Window, shadow)
}

// Spare is the number of a limit with which its policy never denies a share of its callers.
type Spare struct {
	Share      float64 `json:"share"`             // of the callers that are denied nothing
	Number     int64   `json:"number"`            // 0: no tried number spares so many
	CallersHit int64   `json:"callers_hit"`       // the callers that are denied with this number in the file
	AtMost     bool    `json:"at_most,omitempty"` // a lower number may do, too: only some were tried
	Beyond     bool    `json:"beyond,omitempty"`  // no tried number spares so many
}

// Worst is one of the callers with the most denials.
type Worst struct {
	Caller   string    `json:"caller"` // a hash, or the identifier
	Denied   int64     `json:"denied"`
	Requests int64     `json:"requests_since"` // since the first denial
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// Against has the outcomes under the policy of the same name in another file.
type Against struct {
	Requests    int64 `json:"requests"`
	Denied      int64 `json:"denied"`
	Both        int64 `json:"denied_by_both"`
	CallersHit  int64 `json:"callers_hit"`
	OnlyNow     int64 `json:"callers_hit_by_policies_only"`
	OnlyAgainst int64 `json:"callers_hit_by_against_only"`
}

// Bin has the outcomes within BinSeconds.
type Bin struct {
	At       time.Time `json:"at"`
	Requests int64     `json:"requests"`
	Callers  int64     `json:"callers"` // an estimate, exact to about 3 percent
	Denied   []int64   `json:"denied"`  // by each limit, or what a shadow would deny; then by block_for and by rules about numbers
	Against  int64     `json:"denied_against"`
}

var (
	hitBounds = []uint32{1, 2, 5, 10, 50, 100, 1000}
	shares    = []float64{0.99, 0.999}
)

// worstCallers is the number of callers that a report names of each policy.
const worstCallers = 20

// New returns about, which has all about the logs, with the outcomes of their events. examples are unreadable lines.
func New(result *replay.Result, about Report, examples []accesslog.Unreadable, showIdentifiers bool) *Report {
	r, show := &about, hashed()
	if showIdentifiers {
		show = func(id string) string { return id }
	}
	r.BinSeconds = int64(result.Series.Width / time.Second)
	for _, u := range examples {
		if !showIdentifiers {
			u.Text = ""
		}
		r.Examples = append(r.Examples, u)
	}
	for _, name := range slices.Sorted(maps.Keys(result.Policies)) {
		r.Policies = append(r.Policies, newPolicy(result, result.Policies[name], r.Compared, show))
	}
	return r
}

// hashed returns a function that shows an identifier as 16 hex digits: a hash with a key that is not kept, so that nobody
// can look up an identifier.
func hashed() func(string) string {
	var key [sha256.Size]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the process instead
	return func(id string) string {
		mac := hmac.New(sha256.New, key[:])
		mac.Write([]byte(id))
		return hex.EncodeToString(mac.Sum(nil)[:8])
	}
}

func newPolicy(result *replay.Result, p *replay.PolicyResult, compared bool, show func(string) string) *Policy {
	limits := len(p.Policy.Limits)
	made := &Policy{
		Name: p.Policy.Name, Mode: string(p.Policy.Mode), Requests: p.Requests, Callers: p.Callers(), Sampled: p.Sampled(),
		Denied: p.Denied, Blocked: p.DeniedBy[limits], Refused: p.DeniedBy[limits+1], CallersHit: p.CallersHit(),
		OverTime: overTime(result.Series, p.Policy.Name, limits),
	}
	for i, callers := range p.HitTimes(hitBounds) {
		made.HitTimes = append(made.HitTimes, HitTimes{int64(hitBounds[i]), callers})
	}
	for i := range p.Policy.Limits {
		made.Limits = append(made.Limits, newLimit(p, i))
	}
	worst, trimmed := p.Hits(worstCallers)
	for _, h := range worst {
		made.Worst = append(made.Worst, Worst{show(h.Identifier), h.Denied, h.Requests, h.First.Time(), h.Last.Time()})
	}
	if trimmed {
		made.WorstOf = "more callers were denied than can be kept: one that was denied late may be missing"
	}
	if compared {
		all, onlyNow, onlyAgainst := p.CallersHitAgainst()
		made.Against = &Against{p.RequestsAgainst, p.DeniedAgainst, p.DeniedBoth, all, onlyNow, onlyAgainst}
	}
	return made
}

func newLimit(p *replay.PolicyResult, i int) Limit {
	l := &p.Policy.Limits[i]
	made := Limit{Name: l.Name, Algorithm: l.Algorithm, Number: l.Limit, Max: l.Max, By: l.By, Window: l.WindowName(),
		Shadow: l.Shadow, Denied: p.DeniedBy[i]}
	if i >= len(p.Trials) || len(p.Trials[i]) == 0 {
		return made
	}
	for _, share := range shares {
		number, hit, ok := p.Spares(i, 1-share)
		made.Spares = append(made.Spares, Spare{Share: share, Number: number, CallersHit: hit, AtMost: ok && !p.Exact(i), Beyond: !ok})
	}
	made.Curve = p.Trials[i]
	return made
}

// overTime returns all bins of a policy, including those without events.
func overTime(s *replay.Series, policy string, limits int) (bins []Bin) {
	for i, b := range s.Bins {
		bin := Bin{At: s.Start.Add(time.Duration(i) * s.Width).Time(), Denied: make([]int64, limits+2)}
		if b != nil && b.Policies[policy] != nil {
			c := b.Policies[policy]
			bin.Requests, bin.Callers, bin.Denied, bin.Against = c.Requests, c.Callers(), c.Denied, c.Against
		}
		bins = append(bins, bin)
	}
	return bins
}

// WriteJSON writes r as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
