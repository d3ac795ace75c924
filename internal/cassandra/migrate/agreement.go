package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
)

// agreement asks the nodes of a cluster which version of the schema they have.
//
// One node coordinates every change of the schema, once its schema agrees with that of all nodes that answer. Changes of
// tables also need a lock that a majority of replicas grants. So no two changes are concurrent, and it is safe to go on
// without a node that does not answer: it takes over the schema once it is back.
type agreement struct {
	config  *conn.Config
	session *gocql.Session // in no keyspace, so that nodes also answer that don't know ours yet
	nodes   *conn.Nodes
	lead    *gocql.HostInfo // the node that coordinates every change
	without map[string]bool // addresses of nodes that are no longer waited for
}

const (
	answerWithin = 2 * time.Second        // time for a node to return its schema version, which takes a millisecond
	downPatience = 3 * time.Second        // how long nodes without an answer are waited for, as they may just be busy
	agreeQuietly = time.Second            // disagreement is logged after this, as it is usual for a moment after each change
	agreeWithin  = time.Minute            // how long nodes with another schema are waited for
	agreeAgain   = 200 * time.Millisecond // interval of looks
)

var errNoNode = errors.New("no node answers")

// newAgreement finds a node that answers, which then coordinates. It returns a context that sends all requests to that
// node.
func newAgreement(
	ctx context.Context, config *conn.Config, session *gocql.Session, nodes *conn.Nodes,
) (*agreement, context.Context, error) {
	a := &agreement{config: config, session: session, nodes: nodes, without: make(map[string]bool)}
	looking, found := context.WithCancel(ctx) // ends with the first answer, as the others don't matter
	defer found()
	var first sync.Once
	a.each(func(host *gocql.HostInfo) {
		if _, err := a.versionOf(looking, host); err == nil {
			first.Do(func() { a.lead = host })
			found()
		}
	})
	if a.lead == nil {
		return nil, nil, fmt.Errorf("%w within %v, of %s", errNoNode, answerWithin, strings.Join(addresses(nodes.Hosts()), ", "))
	}
	return a, conn.Pinned(ctx, a.lead), nil
}

// each calls do with all nodes at the same time, and returns when all calls have returned.
func (a *agreement) each(do func(*gocql.HostInfo)) {
	var all sync.WaitGroup
	for _, host := range a.nodes.Hosts() {
		all.Go(func() { do(host) })
	}
	all.Wait()
}

func (a *agreement) versionOf(ctx context.Context, host *gocql.HostInfo) (version gocql.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	query := a.session.Query("SELECT schema_version FROM system.local")
	err = query.WithContext(conn.Pinned(ctx, host)).Consistency(gocql.One).Scan(&version)
	return version, err
}

// await waits until all nodes that answer have the schema of the coordinating node, and logs the nodes for which it waits. The
// error names the nodes with another schema.
func (a *agreement) await(ctx context.Context) error {
	tick := time.NewTicker(agreeAgain)
	defer tick.Stop()
	began, told := time.Now(), ""
	for {
		s := a.look(ctx)
		since := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the nodes to agree on the schema: %w", ctx.Err())
		case !s.leads && since > downPatience:
			return fmt.Errorf("node %s, which coordinates changes of the schema, does not answer any more", addressOf(a.lead))
		case s.leads && len(s.differ) == 0 && a.goesOnWithout(s.silent, since):
			return nil
		case since > agreeWithin:
			return fmt.Errorf("the nodes do not agree on the schema after %v: %v", agreeWithin, s)
		}
		if text := s.String(); text != told && (len(s.silent) > 0 || since > agreeQuietly) {
			told = text
			a.config.Logger.Warn("waiting for the nodes to agree on the schema", "nodes", text)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// goesOnWithout reports whether to go on without silent nodes: if there are none, or they have not answered for downPatience.
func (a *agreement) goesOnWithout(silent []string, since time.Duration) bool {
	if len(silent) == 0 || since < downPatience {
		return len(silent) == 0
	}
	for _, address := range silent {
		a.without[address] = true
	}
	a.config.Logger.Warn("going on without nodes that do not answer: they take over the tables within minutes of their return",
		"nodes", strings.Join(silent, ", "))
	return true
}

// schemas is the state of the nodes' schemas.
type schemas struct {
	leads          bool     // whether the coordinating node answered
	differ, silent []string // addresses of nodes with another schema, and of nodes without an answer that are waited for
}

// String describes the nodes that are waited for.
func (s *schemas) String() string {
	var parts []string
	if len(s.silent) > 0 {
		parts = append(parts, "no answer from "+strings.Join(s.silent, ", "))
	}
	if len(s.differ) > 0 {
		parts = append(parts, "another schema on "+strings.Join(s.differ, ", "))
	}
	return strings.Join(parts, "; ")
}

// look asks all nodes for their schemas.
func (a *agreement) look(ctx context.Context) *schemas {
	var mu sync.Mutex
	versions, s := make(map[string]gocql.UUID), new(schemas)
	a.each(func(host *gocql.HostInfo) {
		version, err := a.versionOf(ctx, host)
		mu.Lock()
		defer mu.Unlock()
		switch address := addressOf(host); {
		case err == nil:
			versions[address] = version
		case !a.without[address]:
			s.silent = append(s.silent, address)
		}
	})
	lead, answered := versions[addressOf(a.lead)]
	s.leads = answered
	for address, version := range versions {
		if answered && version != lead {
			s.differ = append(s.differ, address)
		}
	}
	slices.Sort(s.silent)
	slices.Sort(s.differ)
	return s
}

func addressOf(host *gocql.HostInfo) string { return host.ConnectAddressAndPort() }

func addresses(hosts []*gocql.HostInfo) (all []string) {
	for _, host := range hosts {
		all = append(all, addressOf(host))
	}
	slices.Sort(all)
	return all
}
