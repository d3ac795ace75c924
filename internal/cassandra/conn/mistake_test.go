package conn

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gocql/gocql"
)

// refusal is a node's refusal.
type refusal struct {
	code    int
	message string
}

// Code returns the code.
func (r refusal) Code() int { return r.code }

// Message returns the text.
func (r refusal) Message() string { return r.message }

// Error returns the text.
func (r refusal) Error() string { return r.message }

// Errors that a person must mend are told from those that may pass.
func TestMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"a wrong password":       {refusal{gocql.ErrCodeCredentials, "Provided username me and/or password are incorrect"}, true},
		"users can't be read":    {refusal{gocql.ErrCodeCredentials, "Unable to perform authentication: Cannot achieve ONE"}, false},
		"not allowed":            {refusal{gocql.ErrCodeUnauthorized, "User me has no SELECT permission"}, true},
		"no table":               {refusal{gocql.ErrCodeInvalid, "unconfigured table schema_version"}, true},
		"replication of nothing": {refusal{gocql.ErrCodeConfig, "Unable to find replication strategy class"}, true},
		"too few replicas":       {refusal{gocql.ErrCodeUnavailable, "Cannot achieve consistency level QUORUM"}, false},
		"a node that starts":     {refusal{gocql.ErrCodeBootstrapping, "bootstrapping"}, false},
		"no answer":              {gocql.ErrTimeoutNoResponse, false},
		"no connection":          {gocql.ErrNoConnectionsStarted, false},
	} {
		if got := IsMistake(Judged(fmt.Errorf("asking: %w", test.err))); got != test.want {
			t.Errorf("%s: a mistake: %v", name, got)
		}
		refused := new(refusals)
		refused.ObserveConnect(gocql.ObservedConnect{Err: test.err})
		refused.ObserveConnect(gocql.ObservedConnect{}) // another node takes it
		if got := refused.refusal() != nil; got != test.want {
			t.Errorf("%s, on connecting: a mistake: %v", name, got)
		}
	}
	unknown := new(refusals)
	unknown.ObserveConnect(gocql.ObservedConnect{Err: errors.New(`authentication required (using "org.apache.cassandra.auth.Any")`)})
	if unknown.refusal() == nil {
		t.Error("no user: no mistake")
	}
	if Judged(nil) != nil {
		t.Error("nothing is a mistake")
	}
}
