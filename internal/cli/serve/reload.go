package serve

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/shadow"
)

// policySource puts policies in force: at the start, and after each change of their file or each new version in the
// store.
type policySource struct {
	watcher *policyfile.Watcher // of the file of policies; nil: they are in the store
	store   policystore.Store
	follow  *policystore.Follower // of the versions in the store; nil: policies are in a file
	engine  *limiter.Engine
	refuses func([]policy.Policy) error      // checks that the store can keep the policies' promises; nil: it always can
	mapped  atomic.Pointer[policyfile.Envoy] // by the last reload, or at the start
	envoy   *envoy.Server                    // nil: it is served nowhere
	metrics *metrics.Metrics
	shadows *shadow.Table
	events  *eventSource // nil: events are not sent
	audit   *auditLog
	log     *slog.Logger
}

// readPolicies reads the file of policies, and returns its watcher. If file is empty, it returns the examples, which
// are in force until the store has policies, and no watcher.
func readPolicies(file string) (*policyfile.Watcher, policyfile.File, error) {
	if file == "" {
		policies, err := policyfile.LoadOrExamples("")
		return nil, policies, err
	}
	watcher := policyfile.NewWatcher(file)
	policies, err := watcher.Load()
	return watcher, policies, err
}

// set puts policies in force, and warns of those with weaker promises. version is 0 for policies that are not from the
// store.
func (p *policySource) set(version int64, file policyfile.File) (made *changes, err error) {
	if err := p.check(file); err != nil {
		return nil, err
	}
	before := p.engine.Policies()
	if err := p.engine.SetVersion(version, file.Policies); err != nil {
		return nil, err
	}
	p.setEnvoy(file.Envoy)
	p.metrics.SetPolicies(p.engine.Policies())
	p.shadows.SetPolicies(p.engine.Policies())
	p.events.setPolicies(p.engine.Policies(), p.engine.KeyOf)
	p.metrics.SetPoliciesVersion(version)
	attrs := []slog.Attr{slog.Int("count", len(file.Policies))}
	if len(before) > 0 { // else it is the start
		made = policyChanges(before, p.engine.Policies())
		if !reflect.DeepEqual(p.mapped.Load(), file.Envoy) {
			made.Changed = append(made.Changed, policyfile.EnvoyChanged)
		}
		attrs = append(attrs, made.attrs()...)
	}
	p.mapped.Store(file.Envoy)
	attrs = append(attrs, slog.String("from", p.from(version)))
	p.log.LogAttrs(context.Background(), slog.LevelInfo, "policies in force", attrs...)
	p.logCaveats()
	return made, nil
}

// setEnvoy puts the mapping of Envoy's descriptors in force.
func (p *policySource) setEnvoy(mapped *policyfile.Envoy) {
	if p.envoy == nil {
		return
	}
	p.envoy.SetMapping(mapped)
	if mapped == nil || len(mapped.Domains) == 0 {
		p.log.Warn("the file of policies maps no domain of Envoy's: all that Envoy asks about passes")
		return
	}
	p.log.Info("descriptors of Envoy mapped", "domains", len(mapped.Domains))
}

// logCaveats logs the promises that the policies' levels do not give: as warnings, except for the default, which only
// fails to promise anything across data centres.
func (p *policySource) logCaveats() {
	scopes := make(map[string]policy.Scope) // by caveat
	names := make(map[string][]string)      // of policies, by caveat
	for _, policy := range p.engine.Policies() {
		if scope, caveat := p.engine.Promise(policy); caveat != "" {
			scopes[caveat] = scope
			names[caveat] = append(names[caveat], policy.Name)
		}
	}
	for _, caveat := range slices.Sorted(maps.Keys(names)) {
		level := slog.LevelWarn
		if scopes[caveat] == policy.ScopeDatacenter {
			level = slog.LevelInfo
		}
		of := names[caveat]
		p.log.Log(context.Background(), level, "consistency: "+caveat, "count", len(of), "policies", of[:min(len(of), command.MaxLogged)])
	}
}

// changed puts the policies of a changed file in force. A file with mistakes changes nothing.
func (p *policySource) changed(file policyfile.File, err error) {
	var made *changes
	if err == nil {
		made, err = p.set(0, file)
	}
	p.audit.reloaded("policies", "file", err, made)
	p.metrics.SetReloaded(metrics.FilePolicies, err == nil)
	if err == nil {
		return
	}
	p.log.Error("policies not reloaded, those in force stay", command.Mistakes(err)...)
}

// run watches the file, or follows the store, until ctx ends.
func (p *policySource) run(ctx context.Context) error {
	if p.watcher == nil {
		return p.follow.Run(ctx)
	}
	return together(p.tellIgnored, func(ctx context.Context) error { return p.watcher.Run(ctx, p.changed) })(ctx)
}

// onHangup returns a stage that calls reloads on each signal.
func onHangup(hangup <-chan os.Signal, reloads ...func()) stage {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangup:
				for _, reload := range reloads {
					reload()
				}
			}
		}
	}
}

func (p *policySource) reload() {
	if p.watcher == nil {
		p.log.Info("there is no --policies file to read again: the store is asked for a later version")
		p.follow.LookSoon()
		return
	}
	p.watcher.Reload()
}
