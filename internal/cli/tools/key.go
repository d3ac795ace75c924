package tools

import (
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func newKey(p *command.Process) *cobra.Command {
	s := new(settings.Settings)
	cmd := &cobra.Command{
		Use:   "key" + command.SubjectUse,
		Short: "Print the key that an identifier is counted under",
		Long: "Print the key that an identifier is counted under, in hex, as GET /v1/policies/{name}/overshoot has it.\n\n" +
			"It needs no server, but the flags, the environment or the --config file of serve, with the same policies,\n" +
			"namespace and hash key file. It only uses the settings that affect keys.\n\n" +
			"POLICY is the name of a policy. IDENTIFIER is the counted identifier; - reads it from standard input, so\n" +
			"that it is neither in the shell's history nor in the list of processes. One that starts with a dash\n" +
			"goes after --.",
		Example: `  # is it this number?
  ratelimitd key sms-send +4915112345678 --config serve.yaml`,
		Args: command.SubjectArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			policy, identifier, err := command.Subject(cmd, args)
			if err != nil {
				return err
			}
			log, err := s.Load(cmd, p)
			if err != nil {
				return err
			}
			key, err := keyOf(s, policy, keys.Identifier(identifier), log)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hex.EncodeToString(key.Bytes()))
			return err
		},
	}
	cmd.SetFlagErrorFunc(command.PrivateFlagError)
	s.AddServeFlags(cmd.Flags())
	s.AddCassandraFlags(cmd.Flags())
	settings.Hide(cmd.Flags(), "policies", "namespace", "hash-key-file", "store", "consistency", "serial-consistency", "cassandra-datacenter")
	s.AddCommonFlags(cmd.Flags())
	return cmd
}

// keyOf returns the key that a server with these settings would count id under.
func keyOf(s *settings.Settings, policy string, id keys.Identifier, log *slog.Logger) (store.Key, error) {
	policies, err := policyfile.LoadOrExamples(s.Policies)
	if err != nil {
		return store.Key{}, err
	}
	options, err := s.EngineOptions(log)
	if err != nil {
		return store.Key{}, err
	}
	engine := keyEngine(s, options)
	if err := engine.SetPolicies(policies.Policies); err != nil {
		return store.Key{}, err
	}
	key, err := engine.KeyOf(policy, id)
	if err != nil {
		return store.Key{}, err
	}
	p, _ := engine.Policy(policy)
	if s.Cassandra.Datacenter == "" && inOneDatacenter(s, engine, p) {
		return store.Key{}, fmt.Errorf("the name of the data centre is part of the keys of policy %s: give --cassandra-datacenter", policy)
	}
	return key, nil
}

// keyEngine returns an engine that makes the same keys as one over the store that s names. It serves for nothing else.
func keyEngine(s *settings.Settings, options *limiter.Options) *limiter.Engine {
	in := embedded.New(nil)
	if s.Store != settings.StoreCassandra {
		return limiter.New(in, options)
	}
	options.Datacenter, options.Local = s.Cassandra.Datacenter, in
	return limiter.New(struct{ store.Store }{in}, options)
}

// inOneDatacenter reports whether the name of the data centre is part of p's keys: if p is promised within one data
// centre, or if units admitted from memory are written to one.
func inOneDatacenter(s *settings.Settings, engine *limiter.Engine, p *policy.Policy) bool {
	if s.Store == settings.StoreCassandra && p.Guarantee == policy.GuaranteeLocal {
		return policy.WithinDatacenter([]policy.Policy{*p}, s.Levels(), s.SerialConsistency)
	}
	scope, _ := engine.Promise(p)
	return scope == policy.ScopeDatacenter
}
