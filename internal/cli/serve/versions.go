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

// A file given by --policies is in force whatever is in the store, and nobody can change it over the API. Without a
// file, the latest version in the store is in force, or the examples until there is a version.

// followStore puts the store's latest version in force, or the examples if it has none. If the store does not answer,
// that happens later, and nothing is decided before.
func (p *policySource) followStore(ctx context.Context, examples policyfile.File) {
	p.follow = policystore.NewFollower(p.store, &policystore.Options{
		Check: p.check,
		Force: p.force,
		None: func() error {
			p.warnOfExamples()
			_, err := p.set(0, examples)
			return err
		},
		Logger: p.log,
	})
	_ = p.follow.Look(ctx) // it has logged why not
}

// warnOfExamples warns that several instances are about to use policies that nobody chose. Only a store that instances
// share has a refuses.
func (p *policySource) warnOfExamples() {
	if p.refuses != nil {
		p.log.Warn("the examples decide: there is no --policies, and no version in the store; write `policies: /etc/ratelimitd/policies.yaml` " +
			"to the --config file (RATELIMITD_POLICIES), or run `ratelimitd policies apply FILE`")
	}
}

// from returns the source of policies, for the log.
func (p *policySource) from(version int64) string {
	switch {
	case p.watcher != nil:
		return "--policies"
	case version > 0:
		return fmt.Sprintf("the store, version %d", version)
	}
	return "the examples: there is no --policies, and no version in the store"
}

// check returns an error if the store cannot keep the promises of policies.
func (p *policySource) check(file policyfile.File) error {
	if p.refuses == nil {
		return nil
	}
	return p.refuses(file.Policies)
}

// force puts a version from the store in force.
func (p *policySource) force(version int64, file policyfile.File) error {
	made, err := p.set(version, file)
	if made != nil { // at the start or a retry, the log has it already
		p.audit.reloaded("policies", "store", nil, made)
	}
	p.metrics.SetReloaded(metrics.FilePolicies, err == nil)
	return err
}

// askAgain is the interval of requests that are not urgent to a store that does not answer.
const askAgain = 5 * time.Second

// tellIgnored warns, once the store answers, of policies in it that are not in force because there is a file.
func (p *policySource) tellIgnored(ctx context.Context) error {
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for {
		latest, err := p.store.Latest(ctx)
		if err == nil {
			if latest > 0 {
				p.log.Warn("the policies of --policies are in force here, not those in the store", "version_in_store", latest)
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

// versions implements api.Policies.
type versions struct{ source *policySource }

var _ api.Policies = versions{}

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
