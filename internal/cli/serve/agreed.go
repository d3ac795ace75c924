package serve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// agree compares this instance's settings with those of the others, and returns an error if it must not start. If the
// store does not answer, the comparison is made before this instance decides.
func (s *service) agree(ctx context.Context, options *limiter.Options) error {
	if s.store.settings == nil {
		return nil
	}
	common, now := s.settings.Common(), s.sayPolicies
	common["policies"] = agreement.PoliciesOfItsOwn
	if s.source.follow != nil {
		common["policies"], now = agreement.PoliciesOfStore, func(*agreement.Statement) {}
	}
	s.agreed = agreement.New(s.store.settings(s.settings.Namespace), agreement.Statement{
		ID: string(cluster.NewID()), Name: s.name(), HashKeys: agreement.HashKeysOf(hashKeys(options)), Settings: common,
	}, now, s.log)
	s.registry.MustRegister(metrics.NewSettings(s.agreed.Disagreements))
	if err := s.agreed.Join(ctx); errors.Is(err, agreement.ErrHashKey) {
		return command.Fail(err)
	}
	return nil
}

// sayPolicies adds the policies in force to a statement.
func (s *service) sayPolicies(said *agreement.Statement) {
	said.Policies = agreement.PoliciesOf(s.engine, s.store.datacenter)
	if s.envoy != nil {
		maps.Copy(said.Settings, agreement.EnvoyOf(s.source.mapped.Load()))
	}
}

// name returns the name of this instance in the logs of others.
func (s *service) name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s, process %d", host, os.Getpid())
	if s.peers.address != "" {
		name += ", peer address " + s.peers.address
	}
	return name
}

// hashKeys returns the hash keys of options, first the one that new counts are written under.
func hashKeys(options *limiter.Options) (all []keys.HashKey) {
	for _, keyer := range append([]keys.Keyer{options.Keyer}, options.AlsoRead...) {
		if keyer.Secret != nil {
			all = append(all, *keyer.Secret)
		}
	}
	return all
}

// afterAwait returns a stage that runs then as soon as the settings are agreed on.
func afterAwait(settings *agreement.Agreement, then stage) stage {
	return func(ctx context.Context) error {
		if err := settings.Await(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		return then(ctx)
	}
}

// warnings returns problems that an operator should look at, although this instance decides.
func (s *service) warnings() []string {
	found := append(s.store.warnings(), s.peers.warnings()...)
	if s.agreed != nil {
		found = append(found, s.agreed.Warnings()...)
	}
	if s.source.follow != nil {
		found = append(found, s.source.follow.Warnings()...)
	}
	return found
}

// ready returns an error if this instance should not be sent requests.
func (s *service) ready(ctx context.Context) error {
	if s.store.ready != nil {
		if err := s.store.ready(ctx); err != nil {
			return err
		}
	}
	if s.source.follow != nil {
		return s.source.follow.Ready()
	}
	return nil
}
