// Package simulate replays the traffic of access logs against policies.
//
// Its subpackages do the work: accesslog reads, replay decides, report shows. This one selects the policies of each
// line.
package simulate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/simulate/accesslog"
	"github.com/ratelimitd/ratelimitd/internal/simulate/replay"
	"github.com/ratelimitd/ratelimitd/internal/simulate/report"
)

// Options of a simulation.
type Options struct {
	Policies   []policy.Policy
	Against    []policy.Policy // to compare with; nil: nothing is compared
	MaxCallers int             // see replay.Options

	Logs      []string // names of files; accesslog.Stdin: Stdin
	Stdin     io.Reader
	Format    string        // see accesslog.Options
	TimeField string        // see accesslog.Options
	Reorder   time.Duration // how far out of order lines are sorted

	Asks        []Ask       // of each line, all together; empty: those of PolicyField, or the only policy
	PolicyField string      // with the name of the policy that a line asks for; empty: Asks say
	Identifier  string      // the field that identifies callers; empty: accesslog.FieldIP
	Cost        string      // the field with the units; empty: one each
	Limit       string      // the field with the limit that a line brings; empty: none does, and defaults hold
	Confirmed   string      // the field that tells whether the event was confirmed; empty: there is none
	Where       []Condition // lines that do not meet all of them are left out

	ShowIdentifiers bool                          // else the report has hashes of them
	Progress        func(read, size, lines int64) // called now and then; size is in bytes; may be nil
}

// Ask is a policy that lines ask for.
type Ask struct {
	Policy string
	Field  string // that identifies callers; empty: Options.Identifier
}

// ParseAsk reads an Ask: POLICY or POLICY=FIELD.
func ParseAsk(text string) (Ask, error) {
	policy, field, found := strings.Cut(text, "=")
	if policy == "" || found && field == "" {
		return Ask{}, fmt.Errorf("%q is neither POLICY nor POLICY=FIELD", text)
	}
	return Ask{policy, field}, nil
}

// Condition is a condition on a field.
type Condition struct {
	Field   string
	Pattern *regexp.Regexp // of the value
	Not     bool
}

// ParseCondition reads a Condition: FIELD=PATTERN or FIELD!=PATTERN, where a * in PATTERN is anything.
func ParseCondition(text string) (Condition, error) {
	field, pattern, found := strings.Cut(text, "=")
	name, not := strings.CutSuffix(field, "!")
	if !found || name == "" {
		return Condition{}, fmt.Errorf("%q is neither FIELD=PATTERN nor FIELD!=PATTERN", text)
	}
	like, err := regexp.Compile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `\z`)
	if err != nil {
		return Condition{}, fmt.Errorf("%q is no UTF-8", text)
	}
	return Condition{name, like, not}, nil
}

func (c *Condition) holds(value []byte) bool { return c.Pattern.Match(value) != c.Not }

// run is one simulation under way.
type run struct {
	*Options
	asks    []Ask
	fields  []string // of accesslog.Options; the indexes below are into it, and -1 stands for no field
	whose   []int    // the fields that identify the callers of asks
	cost    int
	limit   int
	confirm int
	policy  int
	who     int // the field that identifies the callers of policy
	where   []int
	known   map[string]bool // the policies that can be asked for
	takes   map[string]bool // the policies of both files that take a limit
	replay  *replay.Replay
	demands []limiter.Demand
	left    report.LeftOut
	events  int64
	noLimit int64 // lines without the limit that a policy takes
	from    store.Instant
	to      store.Instant
}

// Run simulates. Errors name the flag of ratelimitd simulate, the policy or the log that they are about.
func Run(ctx context.Context, opts *Options) (*report.Report, error) {
	r := &run{Options: opts, asks: opts.Asks, from: -1}
	if err := r.plan(); err != nil {
		return nil, err
	}
	var err error
	if r.replay, err = replay.New(&replay.Options{
		Policies: opts.Policies, Against: opts.Against, Together: r.together(), MaxCallers: opts.MaxCallers,
		Confirms: opts.Confirmed != "",
	}); err != nil {
		return nil, err
	}
	reading := &accesslog.Options{Format: opts.Format, TimeField: opts.TimeField, Fields: r.fields}
	log, err := accesslog.Open(opts.Logs, reading, opts.Reorder, opts.Stdin)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := r.readAll(ctx, log); err != nil {
		return nil, err
	}
	return r.report(log)
}

// plan finds out which policies lines ask for, and which of their fields are needed.
func (r *run) plan() error {
	r.known = make(map[string]bool)
	derived := make(map[string]bool)
	for i := range r.Policies {
		r.known[r.Policies[i].Name] = true
		for _, d := range r.Policies[i].Derive {
			derived[d.Policy] = true
		}
	}
	r.Identifier = cmp.Or(r.Identifier, accesslog.FieldIP)
	r.policy, r.cost, r.confirm = r.field(r.PolicyField), r.field(r.Cost), r.field(r.Confirmed)
	switch {
	case r.policy >= 0 && len(r.asks) > 0:
		return errors.New("give --policy or --policy-field, not both")
	case r.policy >= 0:
		r.who = r.field(r.Identifier)
	case len(r.asks) == 0:
		var names []string
		for i := range r.Policies {
			if name := r.Policies[i].Name; !derived[name] {
				names = append(names, name)
			}
		}
		if len(names) != 1 {
			return fmt.Errorf("which policy do lines ask for? give --policy or --policy-field; there are %s", strings.Join(names, ", "))
		}
		r.asks = []Ask{{Policy: names[0]}}
	case len(r.asks) > policy.MaxDemands:
		return fmt.Errorf("--policy is there %d times: a call has at most %d demands", len(r.asks), policy.MaxDemands)
	}
	for _, a := range r.asks {
		if !r.known[a.Policy] {
			return fmt.Errorf("--policy: there is no policy %q in --policies", a.Policy)
		}
		r.whose = append(r.whose, r.field(cmp.Or(a.Field, r.Identifier)))
	}
	for i := range r.Where {
		r.where = append(r.where, r.field(r.Where[i].Field))
	}
	return r.planLimit()
}

// planLimit finds out which policies take a limit of a line.
func (r *run) planLimit() error {
	r.takes = make(map[string]bool)
	for _, file := range [][]policy.Policy{r.Policies, r.Against} {
		for i := range file {
			if file[i].FromRequest() >= 0 && r.asksFor(file[i].Name) {
				r.takes[file[i].Name] = true
			}
		}
	}
	if r.limit = r.field(r.Limit); r.limit >= 0 && len(r.takes) == 0 {
		return errors.New("--limit: no policy that lines ask for takes its limit from requests: remove --limit, " +
			"or write limit: {from: request, max: 1000, default: 100} or the like in the policy")
	}
	return nil
}

// asksFor reports whether a line may ask for the policy called name.
func (r *run) asksFor(name string) bool {
	return r.policy >= 0 || slices.ContainsFunc(r.asks, func(a Ask) bool { return a.Policy == name })
}

// together returns the names of the policies that a line asks for, if there are several.
func (r *run) together() (names []string) {
	if len(r.asks) > 1 {
		for _, a := range r.asks {
			names = append(names, a.Policy)
		}
	}
	return names
}

// field returns the index of a field that is wanted, -1 for an empty name.
func (r *run) field(name string) int {
	if name == "" {
		return -1
	}
	i := slices.Index(r.fields, name)
	if i < 0 {
		i = len(r.fields)
		r.fields = append(r.fields, name)
	}
	return i
}

// progressEvery is the number of lines between two reports of the progress, and two checks for an interruption.
const progressEvery = 1 << 13

func (r *run) readAll(ctx context.Context, log *accesslog.Reader) error {
	for n := 0; ; n++ {
		if n%progressEvery == 0 {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			if r.Progress != nil {
				r.Progress(log.BytesRead, log.SizeBytes, log.Lines)
			}
		}
		record, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.take(record); err != nil {
			return fmt.Errorf("after %d lines: %w", log.Lines, err)
		}
	}
}

// take decides a line, unless it is left out.
func (r *run) take(record *accesslog.Record) error {
	if r.from < 0 {
		r.from = record.At
	}
	r.to = record.At
	if !r.demand(record) {
		return nil
	}
	refused, err := r.replay.Take(record.At, r.demands)
	if err != nil {
		return err
	}
	if refused != nil {
		r.left.Refuse(refused)
		return nil
	}
	r.events++
	if r.confirm >= 0 && isConfirmed(record.Fields[r.confirm]) {
		return r.replay.Confirm()
	}
	return nil
}

// isConfirmed reports whether a field's text means confirmed: a time does, and true.
func isConfirmed(text []byte) bool {
	switch strings.ToLower(string(bytes.TrimSpace(text))) {
	case "", "-", "0", "false", "no", "null":
		return false
	}
	return true
}

// demand makes the demands of a line. It counts a line that is left out, and returns false.
func (r *run) demand(record *accesslog.Record) (ok bool) {
	for i := range r.where {
		if !r.Where[i].holds(record.Fields[r.where[i]]) {
			r.left.Where++
			return false
		}
	}
	cost := int64(1)
	if r.cost >= 0 {
		var err error
		if cost, err = costOf(record.Fields[r.cost]); err != nil {
			r.left.Refuse(err)
			return false
		}
	}
	limit, err := r.limitOf(record)
	if err != nil {
		r.left.Refuse(err)
		return false
	}
	r.demands = r.demands[:0]
	if r.policy >= 0 {
		name := record.Fields[r.policy]
		if !r.known[string(name)] {
			r.left.NoPolicy++
			return false
		}
		r.add(string(name), r.caller(record, r.who), cost, limit)
	}
	for i, a := range r.asks {
		r.add(a.Policy, r.caller(record, r.whose[i]), cost, limit)
	}
	if len(r.demands) == 0 {
		r.left.NoIdentifier++
		return false
	}
	if r.limit >= 0 && limit == 0 && slices.ContainsFunc(r.demands, func(d limiter.Demand) bool { return r.takes[d.Policy] }) {
		r.noLimit++
	}
	return true
}

// caller returns the identifier in a field. Of an address, that is the client that a server counts.
func (r *run) caller(record *accesslog.Record, field int) keys.Identifier {
	text := record.Fields[field]
	if accesslog.IsAddress(r.fields[field]) {
		if client, ok := origin.ClientOf(string(text)); ok {
			return keys.Identifier(client)
		}
	}
	return keys.Identifier(bytes.TrimSpace(text))
}

// add adds a demand, unless the identifier is empty. The limit is for policies that take one.
func (r *run) add(policy string, id keys.Identifier, cost, limit int64) {
	if len(id) == 0 {
		return
	}
	if !r.takes[policy] {
		limit = 0
	}
	r.demands = append(r.demands, limiter.Demand{Policy: policy, Identifier: id, Cost: cost, Limit: limit})
}

// limitOf returns the limit that a line brings; 0: none.
func (r *run) limitOf(record *accesslog.Record) (int64, error) {
	if r.limit < 0 {
		return 0, nil
	}
	switch text := string(bytes.TrimSpace(record.Fields[r.limit])); text {
	case "", "-", "null":
		return 0, nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%w: the limit is not a whole number of at least 1", limiter.ErrInvalid)
		}
		return n, nil
	}
}

// costOf reads a number of units. An empty text stands for one unit.
func costOf(text []byte) (int64, error) {
	if len(text) == 0 {
		return 1, nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: the cost is not a whole number", limiter.ErrInvalid)
	}
	return n, nil
}

// defaults returns, in order, the policies that take their limit from lines, if no flag names its field.
func (r *run) defaults() []string {
	if r.limit >= 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(r.takes))
}

func (r *run) report(log *accesslog.Reader) (*report.Report, error) {
	if log.Lines == 0 {
		if len(log.Examples) == 0 {
			return nil, errors.New("reading logs: there is no line in them")
		}
		u := log.Examples[0]
		return nil, fmt.Errorf("reading logs: none of %d lines can be read: %s, line %d: %s", log.Unreadable, u.File, u.Line, u.Why)
	}
	return report.New(&r.replay.Result, report.Report{
		Logs: r.Logs, From: r.from.Time(), To: r.to.Time(),
		Lines: log.Lines, Decided: r.events, Late: log.Late, ReorderMS: r.Reorder.Milliseconds(), LeftOut: r.left,
		Unreadable: log.Unreadable, NoAddress: log.NoAddress, Listed: log.Listed, Forwarded: log.Forwarded,
		Compared: r.Against != nil, Unjudged: r.replay.Unjudged, Untimed: r.replay.Untimed,
		NoLimit: r.noLimit, Defaults: r.defaults(),
	}, log.Examples, r.ShowIdentifiers), nil
}
