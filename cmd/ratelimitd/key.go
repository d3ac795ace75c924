package main

import (
	"encoding/hex"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func newKey(environ []string) *cobra.Command {
	s := new(settings)
	cmd := &cobra.Command{
		Use:   "key POLICY IDENTIFIER",
		Short: "Print the key that an identifier is counted under",
		Long: "Print the key that an identifier is counted under, in hex, as GET /v1/policies/{name}/overshoot has it.\n\n" +
			"It asks nobody: give it the flags, the environment or the --config file of serve, with the same policies,\n" +
			"namespace and hash key file. Others than those that make the key are not looked at.\n\n" +
			"POLICY is the name of a policy. IDENTIFIER is who is counted; - reads it from standard input, so\n" +
			"that it is neither in the shell's history nor in the list of processes. One that starts with a dash\n" +
			"goes after --.",
		Example: `  # is it this number?
  ratelimitd key sms-send +4915112345678 --config serve.yaml`,
		Args: policyAndIdentifier,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, err := demandOf(cmd, args)
			if err != nil {
				return err
			}
			log, err := s.load(cmd, environ)
			if err != nil {
				return err
			}
			key, err := s.keyOf(about.Policy, limiter.Identifier(about.Identifier), log)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hex.EncodeToString(key.Bytes()))
			return err
		},
	}
	cmd.SetFlagErrorFunc(askFlagError)
	s.addCommonFlags(cmd.Flags())
	s.addServeFlags(cmd.Flags())
	s.addCassandraFlags(cmd.Flags())
	return cmd
}

// keyOf returns the key that serve would count id under.
func (s *settings) keyOf(policy string, id limiter.Identifier, log *slog.Logger) (limiter.Key, error) {
	policies, err := loadPolicies(s.policies)
	if err != nil {
		return limiter.Key{}, err
	}
	hashKeys, err := readHashKeys(s.hashKeyFile, log)
	if err != nil {
		return limiter.Key{}, err
	}
	engine := newEngine(s, s.keyless(), nil, hashKeys, nil)
	if err := engine.SetPolicies(policies.Policies); err != nil {
		return limiter.Key{}, err
	}
	key, err := engine.KeyOf(policy, id)
	if err != nil {
		return limiter.Key{}, err
	}
	p, _ := engine.Policy(policy)
	if s.cassandra.datacenter == "" && s.inOneDatacenter(engine, p) {
		return limiter.Key{}, fmt.Errorf("the name of the data centre is part of the keys of policy %s: give --cassandra-datacenter", policy)
	}
	return key, nil
}

// inOneDatacenter reports whether the name of the data centre is part of p's keys: where p is
// promised within one, and where what is admitted from memory is written to one.
func (s *settings) inOneDatacenter(engine *limiter.Engine, p *limiter.Policy) bool {
	if s.store == storeCassandra && p.Guarantee == limiter.GuaranteeLocal {
		return limiter.WithinDatacenter([]limiter.Policy{*p}, s.levels(), s.cassandra.serialConsistency)
	}
	scope, _ := engine.Promise(p)
	return scope == limiter.ScopeDatacenter
}

// keyless returns a backend that keys are made for as for the store that s names, and
// that nothing is asked of.
func (s *settings) keyless() *backend {
	store := embedded.New(nil)
	if s.store == storeCassandra {
		return &backend{store: struct{ limiter.Store }{store}, local: store, datacenter: s.cassandra.datacenter}
	}
	return &backend{store: store}
}
