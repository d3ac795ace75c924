package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// A file that is given by --policies rules, whatever is in the store: who deploys a file sees it in force, and
// nobody changes it over the API. Without one, the store rules; the examples are in force until it has a version.

// followStore has the store's latest version in force, or the examples if it has none. If the store does not answer
// that is found out later, and nothing is decided before.
func (p *policySource) followStore(ctx context.Context, examples policyfile.File) {
	p.follow = policystore.NewFollower(p.store, &policystore.Options{
		Check:  p.check,
		Force:  p.force,
		None:   func() error { p.warnOfExamples(); return p.set(0, examples) },
		Logger: p.log,
	})
	_ = p.follow.Look(ctx) // it has logged why not
}

// warnOfExamples says that several instances are about to go by policies that nobody chose. Only a store that instances share
// refuses policies.
func (p *policySource) warnOfExamples() {
	if p.refuses != nil {
		p.log.Warn("the examples decide: there is no --policies, and no version in the store; write `policies: /etc/ratelimitd/policies.yaml` " +
			"to the --config file (RATELIMITD_POLICIES), or run `ratelimitd policies apply FILE`")
	}
}

// from says where policies come from.
func (p *policySource) from(version int64) string {
	switch {
	case p.watcher != nil:
		return "--policies"
	case version > 0:
		return fmt.Sprintf("the store, version %d", version)
	}
	return "the examples: there is no --policies, and no version in the store"
}

// check says why policies could not come into force.
func (p *policySource) check(file policyfile.File) error {
	if p.refuses == nil {
		return nil
	}
	return p.refuses(file.Policies)
}

// force puts a version of the store's in force.
func (p *policySource) force(version int64, file policyfile.File) error {
	p.changes = nil
	err := p.set(version, file)
	if err == nil && p.changes != nil { // else it is the start, or is tried again, and the log has it
		p.audit.reloaded("policies", "store", nil, p.changes)
	}
	p.metrics.SetReloaded(metrics.FilePolicies, err == nil)
	return err
}

// askAgain is the interval of requests that are not urgent to a store that does not answer.
const askAgain = 5 * time.Second

// tellIgnored says, once the store answers, if it has policies that are not in force because a file rules.
func (p *policySource) tellIgnored(ctx context.Context) error {
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for {
		latest, err := p.store.Latest(ctx)
		if err == nil {
			if latest > 0 {
				p.log.Warn("the policies of --policies rule here, those in the store do not", "version_in_store", latest)
			}
			return untilDone(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// versions are the versions of the policies as the API sees them.
type versions struct{ source *policySource }

var _ api.Policies = versions{}

func versionsOf(source *policySource) api.Policies { return versions{source} }

// Apply makes a version; see api.Policies.
func (v versions) Apply(ctx context.Context, text []byte, have int64, by string) (api.PolicyVersion, []slog.Attr, error) {
	p := v.source
	if p.follow == nil {
		return api.PolicyVersion{}, nil, encode.ErrFromFile
	}
	if have == api.AnyVersion {
		have = policystore.Any
	}
	was, before := p.engine.Version()
	made, err := p.follow.Apply(ctx, text, have, by)
	if err != nil {
		return api.PolicyVersion{}, nil, v.problem(err)
	}
	attrs := []slog.Attr{slog.Int64("replaced", was)}
	if is, after := p.engine.Version(); is == made.Number {
		attrs = append(attrs, policyChanges(before, after).attrs()...)
	}
	return viewOf(&made), attrs, nil
}

// problem returns err as the API knows it.
func (v versions) problem(err error) error {
	var mistakes yamlfile.Errors
	switch {
	case errors.As(err, &mistakes):
		return &decode.Error{Kind: limiter.ErrInvalid, Detail: mistakes.Error()}
	case errors.Is(err, policystore.ErrConflict):
		return fmt.Errorf("%w: %w", encode.ErrNotLatest, err)
	case errors.Is(err, policystore.ErrNoVersion):
		return fmt.Errorf("%w: %w", encode.ErrNoVersion, err)
	}
	return err
}

// Versions lists versions.
func (v versions) Versions(ctx context.Context) (all []api.PolicyVersion, err error) {
	kept, err := v.source.store.History(ctx)
	for i := range kept {
		all = append(all, viewOf(&kept[i]))
	}
	return all, err
}

// Version returns a version.
func (v versions) Version(ctx context.Context, number int64) (api.PolicyVersion, []byte, error) {
	set, err := v.source.store.Read(ctx, number)
	if err != nil {
		return api.PolicyVersion{}, nil, v.problem(err)
	}
	return viewOf(&set.Version), set.Text, nil
}

func viewOf(v *policystore.Version) api.PolicyVersion {
	return api.PolicyVersion{Version: v.Number, Digest: v.Digest, Policies: v.Policies, At: v.At, By: v.By}
}
