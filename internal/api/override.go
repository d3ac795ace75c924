package api

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// admin is an administrator's request about an identifier.
type admin struct {
	limiter.Demand
	by asker
}

// adminOverride is an administrator's request about the override of an identifier or, if prefix is not empty, of all
// identifiers with that prefix.
type adminOverride struct {
	admin
	prefix   string
	override demand.Override // to be set
	lasts    time.Duration   // of override; 0: it has no end
}

// overrideView is an override in force.
type overrideView struct {
	Key         string                 `json:"key,omitempty"`
	Prefix      string                 `json:"prefix,omitempty"`
	Policy      string                 `json:"policy"`
	Kind        string                 `json:"kind"`
	Limits      []demand.LimitOverride `json:"limits,omitempty"`
	ExpiresAt   *time.Time             `json:"expires_at"` // nil: it has no end
	ExpiresInMS *int64                 `json:"expires_in_ms"`
	MadeAt      time.Time              `json:"made_at"`
	By          string                 `json:"by,omitempty"`
}

type overrideList struct {
	Overrides []overrideView `json:"overrides"`
	Total     int            `json:"total"`
}

// maxListed is the maximum of overrides in an answer: first those without end, then by the time of their end.
const maxListed = 1000

var (
	overriddenNames    = append(slices.Clip(decode.KeyNames), "prefix")
	overrideNames      = append(slices.Clip(overriddenNames), "kind", "limits", "expires_in_ms")
	overrideLimitNames = []string{"name", "limit", "burst"}
)

// decodeAdmin reads {"policy", "identifier"}.
func decodeAdmin(r *http.Request, m *scratch) (a admin, err error) {
	a.by = m.askerOf(r)
	a.Demand, err = m.readKey(r)
	return a, err
}

// decodeOverridden reads {"policy", "identifier"} or {"policy", "prefix"}.
func decodeOverridden(r *http.Request, m *scratch) (o adminOverride, err error) {
	err = o.read(r, m, overriddenNames)
	return o, err
}

// decodeOverride is decodeOverridden with the members "kind", "limits" and "expires_in_ms".
func decodeOverride(r *http.Request, m *scratch) (o adminOverride, err error) {
	err = o.read(r, m, overrideNames, "kind", "expires_in_ms")
	return o, err
}

// read fills in o from the body of r, which may have members of these names and must have the required ones.
func (o *adminOverride) read(r *http.Request, m *scratch, names []string, required ...string) error {
	o.by = m.askerOf(r)
	body, err := m.readJSON(r, decode.MaxBody)
	if err != nil {
		return err
	}
	seen, err := decode.ReadObject(body, names, o.readMember)
	if err == nil {
		err = requireOverridden(seen)
	}
	if err == nil {
		err = seen.Require(required...)
	}
	if err != nil {
		return err
	}
	return mayUse(m.caller, o.Policy)
}

// requireOverridden returns an error unless an object has a policy, and either an identifier or a prefix.
func requireOverridden(seen decode.Members) error {
	switch {
	case !seen.Has("prefix"):
		return seen.Require(decode.KeyNames...)
	case seen.Has("policy") && seen.Has("identifier"):
		return decode.Wrong("prefix", "prefix is given with identifier: give one of them.")
	}
	return seen.Require("policy")
}

func (o *adminOverride) readMember(name string, v decode.Value) (err error) {
	switch name {
	case "prefix":
		if o.prefix, err = v.Text(); err == nil && o.prefix == "" {
			err = decode.Wrong("", "It is empty: use 1 to "+strconv.Itoa(policy.MaxPrefixLen)+" bytes of UTF-8.")
		}
	case "kind":
		var kind string
		kind, err = v.Text()
		o.override.Kind = policy.OverrideKind(kind)
	case "limits":
		o.override.Limits, err = readOverrideLimits(v)
	case "expires_in_ms":
		if v == "null" { // it must be explicit, so a missing member is an error
			return nil
		}
		var ms int64
		ms, err = v.Integer(overrides.Shortest.Milliseconds(), overrides.Longest.Milliseconds())
		o.lasts = time.Duration(ms) * time.Millisecond
	default:
		err = decode.ReadDemand(&o.Demand, name, v)
	}
	return err
}

func readOverrideLimits(v decode.Value) ([]demand.LimitOverride, error) {
	if v[0] != '[' {
		return nil, v.Not("an array of limits")
	}
	elements := slices.Collect(v.Elements())
	if len(elements) > policy.MaxLimits {
		return nil, decode.Wrong("", "A policy has at most "+strconv.Itoa(policy.MaxLimits)+" limits.")
	}
	limits := make([]demand.LimitOverride, len(elements))
	for i, e := range elements {
		l := &limits[i]
		seen, err := decode.ReadObject(e, overrideLimitNames, func(name string, v decode.Value) (err error) {
			switch name {
			case "name":
				l.Name, err = v.Text()
			case "limit":
				l.Limit, err = v.Integer(0, policy.MaxLimit)
			case "burst":
				l.Burst, err = v.Integer(1, policy.MaxLimit)
			}
			return err
		})
		if err == nil {
			err = seen.Require("name", "limit")
		}
		if err != nil {
			return nil, decode.Under("["+strconv.Itoa(i)+"].", err)
		}
	}
	return limits, nil
}

// setOverride puts an override in force.
func (s *Server) setOverride(ctx context.Context, o adminOverride) (answer, error) {
	o.override.Until, o.override.By = store.Distant, o.by.name()
	if o.lasts > 0 {
		o.override.Until = store.InstantOf(s.opts.Now().Add(o.lasts))
	}
	var set demand.Override
	var err error
	if o.prefix != "" {
		set, err = s.engine.Overrides.SetPrefix(ctx, o.Policy, o.prefix, o.override)
	} else {
		set, err = s.engine.Overrides.Set(ctx, o.Policy, o.Identifier, o.override)
	}
	err = decode.Undone(err)
	details := o.details(err)
	if err == nil {
		details = append(details, slog.String("kind", string(o.override.Kind)), slog.Any("limits", o.override.Limits))
	}
	ends := slog.Any("expires_at", nil)
	if o.lasts > 0 {
		ends = slog.Time("expires_at", o.override.Until.Time())
	}
	s.audit(ctx, &o.by, "override.set", &o.Demand, err, append(details, ends)...)
	if err != nil {
		return nil, err
	}
	return s.viewOne(&o.Demand, &set), nil
}

// getOverride answers with the override in force.
func (s *Server) getOverride(_ context.Context, a adminOverride) (answer, error) {
	var o demand.Override
	var there bool
	var err error
	if a.prefix != "" {
		o, there, err = s.engine.Overrides.OfPrefix(a.Policy, a.prefix)
	} else {
		o, there, err = s.engine.Overrides.Of(a.Policy, a.Identifier)
	}
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, encode.ErrNoOverride
	}
	return s.viewOne(&a.Demand, &o), nil
}

// deleteOverride ends the override in force, if there is one.
func (s *Server) deleteOverride(ctx context.Context, a adminOverride) (answer, error) {
	var err error
	if a.prefix != "" {
		err = s.engine.Overrides.EndPrefix(ctx, a.Policy, a.prefix)
	} else {
		err = s.engine.Overrides.End(ctx, a.Policy, a.Identifier)
	}
	err = decode.Undone(err)
	s.audit(ctx, &a.by, "override.delete", &a.Demand, err, a.details(err)...)
	if err != nil {
		return nil, err
	}
	return encode.Nothing{}, nil
}

// details returns the attributes of o for the audit log, none if err is not nil: a refused request may have an
// identifier in the wrong place.
func (o *adminOverride) details(err error) []slog.Attr {
	if err != nil || o.prefix == "" {
		return nil
	}
	return []slog.Attr{slog.String("prefix", o.prefix)}
}

// overrides lists the overrides in force under the policies that caller may use.
func (s *Server) overrides(_ context.Context, caller *auth.Caller) (answer, error) {
	list := overrideList{Overrides: []overrideView{}}
	all := s.engine.Overrides.All()
	for i := range all {
		o := &all[i]
		if !caller.MayUse(o.Policy) {
			continue
		}
		if list.Total++; list.Total <= maxListed {
			list.Overrides = append(list.Overrides, s.viewOverride(o))
		}
	}
	return encode.Document{Content: list}, nil
}

// viewOne returns the answer about an override, whose policy is in force.
func (s *Server) viewOne(d *limiter.Demand, o *demand.Override) answer {
	key, _ := s.engine.KeyOf(d.Policy, d.Identifier)
	return encode.Document{Content: s.viewOverride(&overrides.Keyed{Key: key, Policy: d.Policy, Override: *o})}
}

func (s *Server) viewOverride(o *overrides.Keyed) overrideView {
	view := overrideView{
		Prefix: o.Prefix, Policy: o.Policy, Kind: string(o.Kind), Limits: o.Limits, By: o.By,
		MadeAt: encode.ToMilliseconds(o.Made.Time()),
	}
	if o.Prefix == "" {
		view.Key = hex.EncodeToString(o.Key.Bytes())
	}
	if !o.Stays() {
		rest := o.Until.Sub(store.InstantOf(s.opts.Now()))
		view.ExpiresAt, view.ExpiresInMS = new(encode.ToMilliseconds(o.Until.Time())), new(max(0, encode.Milliseconds(rest)))
	}
	return view
}
