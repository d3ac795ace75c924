package cassandra_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	regionInstances = 2 // in each data centre
	regionLimit     = 5
	regionRounds    = 4 // of takes in turn: each data centre alone reaches the limit
	regionKeys      = 4 // that all contend for
	// frozenTimeout is a decision's while the other data centre does not answer.
	frozenTimeout = 3 * time.Second
)

// regions are two data centres, and the stores of the instances in each of them.
type regions struct {
	cluster *cassandratest.Cluster
	config  cassandra.Config
	stores  [][]*cassandra.Store // by data centre
}

// reach is a way to count, and how far its promise reaches.
type reach struct {
	algorithm   string
	write, read policy.Level
	serial      policy.Level
	scope       policy.Scope
}

// TestTwoDatacenters has instances in two data centres count for the same identifiers:
// each data centre for itself, or both together, as the levels say.
func TestTwoDatacenters(t *testing.T) {
	t.Parallel()
	r := startRegions(t)
	t.Run("none is said to be local", r.testNoneIsLocal)
	for _, c := range reaches() {
		t.Run(c.String(), func(t *testing.T) { r.testReach(t, &c) })
	}
	t.Run("once", r.testOnce)
	t.Run("one of them frozen", r.testFrozen)
	t.Run("the local node dead", r.testLocalNodeDies)
}

func startRegions(t *testing.T) *regions {
	t.Helper()
	r := &regions{cluster: cassandratest.StartCluster(t, &cassandratest.ClusterOptions{
		Datacenters: []string{"dc1", "dc2", "dc2"}, // of three replicas two are a quorum, here or there or in both
		// As generous as the engines': a machine that is busy must not make it a failure.
		Config: map[string]string{
			"read_request_timeout": "20s", "write_request_timeout": "20s", "counter_write_request_timeout": "20s", "cas_contention_timeout": "20s",
		},
	})}
	r.config = cassandra.Config{
		Hosts: r.cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Timeout: contentionTimeout, Connections: 1,
	}
	if err := cassandra.Migrate(t.Context(), r.config); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dc1", "dc2"} {
		var stores []*cassandra.Store
		for range regionInstances {
			config := r.config
			config.Datacenter, config.UsesLocalLevels = name, true
			stores = append(stores, openStore(t, config))
		}
		r.stores = append(r.stores, stores)
	}
	return r
}

func openStore(t *testing.T, config cassandra.Config) *cassandra.Store {
	t.Helper()
	store, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// reaches returns every way to count that is tried.
func reaches() (all []reach) {
	const quorum, local, each = policy.LevelQuorum, policy.LevelLocalQuorum, policy.LevelEachQuorum
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-tail"} {
		all = append(all,
			reach{algorithm, local, local, policy.LevelLocalSerial, policy.ScopeDatacenter},
			reach{algorithm, quorum, quorum, policy.LevelLocalSerial, policy.ScopeCluster},
			reach{algorithm, each, local, policy.LevelLocalSerial, policy.ScopeCluster},
		)
	}
	for serial, scope := range map[policy.Level]policy.Scope{
		policy.LevelLocalSerial: policy.ScopeDatacenter, policy.LevelSerial: policy.ScopeCluster,
	} {
		all = append(all,
			reach{"token-bucket", local, local, serial, scope},
			reach{"leaky-bucket", quorum, quorum, serial, scope},
		)
	}
	return all
}

func (c *reach) String() string {
	if c.exact() {
		return fmt.Sprintf("%s %s", c.algorithm, c.serial)
	}
	return fmt.Sprintf("%s %s-%s", c.algorithm, c.write, c.read)
}

// exact reports whether c compares and sets: then nobody is denied while there is room.
func (c *reach) exact() bool {
	return c.algorithm == "token-bucket" || c.algorithm == "leaky-bucket"
}

// policy returns one whose window is so long that hardly an edge falls into a test.
func (c *reach) policy() policy.Policy {
	return policy.Policy{
		Name: "p", Consistency: policy.Consistency{Write: c.write, Read: c.read},
		Limits: []policy.Limit{{Algorithm: c.algorithm, Limit: regionLimit, Window: policy.MaxWindow}},
	}
}

// engine returns one over store for c, in a namespace of the test's.
func (c *reach) engine(t *testing.T, store *cassandra.Store) *limiter.Engine {
	t.Helper()
	return regionEngine(t, store, contentionTimeout, c.serial, c.policy())
}

func regionEngine(
	t *testing.T, store *cassandra.Store, timeout time.Duration, serial policy.Level, policies ...policy.Policy,
) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{
		Keyer: keys.Keyer{Namespace: t.Name()}, Datacenter: store.Datacenter(), Serial: serial, StoreTimeout: timeout,
	})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

// groups returns the engines that share a limit: those of each data centre, or all.
func (r *regions) groups(t *testing.T, c *reach) [][]*limiter.Engine {
	t.Helper()
	var groups [][]*limiter.Engine
	for i := range r.stores {
		if i == 0 || c.scope == policy.ScopeDatacenter {
			groups = append(groups, nil)
		}
		for _, store := range r.stores[i] {
			groups[len(groups)-1] = append(groups[len(groups)-1], c.engine(t, store))
		}
	}
	return groups
}

// testReach has all engines take in turn, where all of the limit is used in each group,
// and then at the same time, where no more than that is.
func (r *regions) testReach(t *testing.T, c *reach) {
	groups := r.groups(t, c)
	for _, engines := range groups {
		for _, e := range engines {
			if scope, _ := e.Promise(e.Policies()[0]); scope != c.scope {
				t.Errorf("the promise is said to hold over the %q, want %q", scope, c.scope)
			}
		}
	}
	wantUsedUp(t, groups, true, takenInTurn(t, groups, "p", "in turn"))
	for n := range regionKeys {
		wantUsedUp(t, groups, c.exact(), takenAtOnce(t, groups, keyOf(n)))
	}
}

// takenInTurn returns what was answered to each group, whose takes come one after the
// other.
func takenInTurn(t *testing.T, groups [][]*limiter.Engine, policy string, id keys.Identifier) []keyOutcome {
	t.Helper()
	outcomes := make([]keyOutcome, len(groups))
	for range regionRounds {
		for i, engines := range groups {
			for _, e := range engines {
				d, err := e.Take(t.Context(), limiter.Demand{Policy: policy, Identifier: id})
				outcomes[i].add(t, &d, err)
			}
		}
	}
	return outcomes
}

// takenAtOnce returns what was answered to each group, whose engines all take from one
// key at the same time.
func takenAtOnce(t *testing.T, groups [][]*limiter.Engine, id keys.Identifier) []keyOutcome {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	outcomes := make([]keyOutcome, len(groups))
	for i, engines := range groups {
		for _, e := range engines {
			all.Go(func() {
				for range regionLimit {
					d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
					mu.Lock()
					outcomes[i].add(t, &d, err)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	return outcomes
}

// wantUsedUp fails the test if a group was admitted more than the limit or, where all of it
// should be used, less. Calls without an answer may have used some.
func wantUsedUp(t *testing.T, groups [][]*limiter.Engine, all bool, outcomes []keyOutcome) {
	t.Helper()
	for i, o := range outcomes {
		if o.admitted > regionLimit {
			t.Errorf("group %d of %d: more than %d admitted: %+v", i, len(groups), regionLimit, o)
		}
		if all && o.admitted+o.unknown+o.failed < regionLimit {
			t.Errorf("group %d of %d: less than %d admitted: %+v", i, len(groups), regionLimit, o)
		}
		if o.unknown+o.failed > 0 {
			t.Logf("group %d of %d: %+v", i, len(groups), o)
		}
	}
}

// testNoneIsLocal opens stores that were not told which data centre is theirs.
func (r *regions) testNoneIsLocal(t *testing.T) {
	config := r.config
	config.UsesLocalLevels = true
	_, err := cassandra.Open(t.Context(), config)
	if err == nil || !strings.Contains(err.Error(), "cassandra-datacenter: ") || !strings.Contains(err.Error(), "dc1, dc2") {
		t.Errorf("levels that are local, and none is: %v", err)
	}
	config.UsesLocalLevels = false
	anywhere := openStore(t, config)
	if name := anywhere.Datacenter(); name != "" {
		t.Errorf("%q is local, which nobody said", name)
	}
	within := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1, Window: time.Hour}}}
	if err := anywhere.CanPromise([]policy.Policy{within}); err == nil || !strings.Contains(err.Error(), "dc1, dc2") {
		t.Errorf("a policy of local levels, where none is local: %v", err)
	}
	within.Consistency = policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
	if err := anywhere.CanPromise([]policy.Policy{within}); err != nil {
		t.Errorf("a policy of levels that are not: %v", err)
	}
	for _, c := range []reach{
		{"sliding-log", policy.LevelQuorum, policy.LevelQuorum, policy.LevelSerial, policy.ScopeCluster},
		{"token-bucket", policy.LevelQuorum, policy.LevelQuorum, policy.LevelSerial, policy.ScopeCluster},
	} {
		t.Run(c.String(), func(t *testing.T) {
			groups := r.groups(t, &c)
			groups[0] = append(groups[0], c.engine(t, anywhere))
			wantUsedUp(t, groups, true, takenInTurn(t, groups, "p", "in turn"))
		})
	}
}

// testOnce sends one call with an idempotency key to all engines at the same time, and
// then all receipts: it counts once, and is given back once, in each group.
func (r *regions) testOnce(t *testing.T) {
	const quorum, local, each = policy.LevelQuorum, policy.LevelLocalQuorum, policy.LevelEachQuorum
	for _, c := range []reach{
		{"sliding-log", local, local, policy.LevelLocalSerial, policy.ScopeDatacenter},
		{"sliding-log", quorum, quorum, policy.LevelLocalSerial, policy.ScopeCluster},
		{"sliding-log", each, local, policy.LevelLocalSerial, policy.ScopeCluster},
		{"token-bucket", local, local, policy.LevelLocalSerial, policy.ScopeDatacenter},
		{"token-bucket", local, local, policy.LevelSerial, policy.ScopeCluster},
	} {
		t.Run(c.String(), func(t *testing.T) {
			groups := r.groups(t, &c)
			receipts := countedOnce(t, groups)
			for i, receipt := range receipts {
				wantUsedIn(t, groups[i], 1, "by one call with an idempotency key")
				if refundedOnce(t, groups, i, receipt) {
					wantUsedIn(t, groups[i], 0, "after its refund")
				}
			}
		})
	}
}

// countedOnce returns the receipt of each group.
func countedOnce(t *testing.T, groups [][]*limiter.Engine) []string {
	t.Helper()
	type told struct {
		answer limiter.Answer
		failed int
		err    error
	}
	answers := make([][]told, len(groups))
	var all sync.WaitGroup
	for i, engines := range groups {
		answers[i] = make([]told, len(engines))
		for j, e := range engines {
			all.Go(func() {
				a := &answers[i][j]
				demand := limiter.Demand{Policy: "p", Identifier: "somebody"}
				call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{demand}, IdempotencyKey: "a call"}
				a.failed, a.err = persist(func() (err error) { a.answer, err = e.Do(t.Context(), &call); return err })
			})
		}
	}
	all.Wait()
	receipts := make([]string, len(groups))
	for i := range groups {
		decided, failed := 0, 0
		for _, a := range answers[i] {
			if a.err != nil || !a.answer.Allowed || a.answer.Receipt == "" {
				t.Fatalf("allowed %v, receipt %q, %v", a.answer.Allowed, a.answer.Receipt, a.err)
			}
			if receipts[i] == "" {
				receipts[i] = a.answer.Receipt
			}
			if a.answer.Receipt != receipts[i] {
				t.Error("repetitions of a call were given receipts that differ")
			}
			if !a.answer.Replayed {
				decided++
			}
			failed += a.failed
		}
		if decided > 1 || decided == 0 && failed == 0 {
			t.Errorf("group %d of %d: %d of %d calls were decided, want one", i, len(groups), decided, len(groups[i]))
		}
	}
	return receipts
}

// persist repeats what the store failed to answer, as callers are told to. It returns
// how often that was.
func persist(do func() error) (failed int, err error) {
	for start := time.Now(); ; failed++ {
		err = do()
		if !errors.Is(err, store.ErrUnavailable) || time.Since(start) > pausePatience {
			return failed, err
		}
	}
}

// refundedOnce brings the receipt of a group to all engines at the same time. It is sure
// of what it gave back if all were answered.
func refundedOnce(t *testing.T, groups [][]*limiter.Engine, group int, receipt string) (sure bool) {
	t.Helper()
	refunds, failed := make([][]error, len(groups)), make([]atomic.Int64, len(groups))
	var all sync.WaitGroup
	for i, engines := range groups {
		refunds[i] = make([]error, len(engines))
		for j, e := range engines {
			all.Go(func() {
				n, err := persist(func() error { return e.Refund(t.Context(), receipt) })
				failed[i].Add(int64(n))
				refunds[i][j] = err
			})
		}
	}
	all.Wait()
	for i := range refunds {
		given, want := 0, 0
		if i == group {
			want = 1
		}
		for _, err := range refunds[i] {
			switch {
			case err == nil:
				given++
			case !errors.Is(err, limiter.ErrNoReceipt):
				t.Error(err)
			}
		}
		if given > want || given < want && failed[i].Load() == 0 { // one that was in doubt may be it
			t.Errorf("the receipt of group %d was refunded %d times in group %d, want %d", group, given, i, want)
		}
	}
	return failed[group].Load() == 0
}

func wantUsedIn(t *testing.T, engines []*limiter.Engine, want int64, when string) {
	t.Helper()
	for _, e := range engines {
		var d count.Decision
		_, err := persist(func() (err error) {
			d, err = e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: "somebody"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if d.Used != want {
			t.Errorf("used %d %s, want %d", d.Used, when, want)
		}
	}
}

// testFrozen freezes one data centre. Limits within the other one go on there; limits over both
// are answered as policies say; and answers agree with the counts once all is well again.
func (r *regions) testFrozen(t *testing.T) {
	const local, each = policy.LevelLocalQuorum, policy.LevelEachQuorum
	const deny, allow = policy.OnStoreErrorDeny, policy.OnStoreErrorAllow
	pol := func(name, algorithm string, write policy.Level, on policy.OnStoreError) policy.Policy {
		c := reach{algorithm: algorithm, write: write, read: local}
		p := c.policy()
		p.Name, p.OnStoreError = name, on
		return p
	}
	goingOn := []policy.Policy{
		pol("log", "sliding-log", local, deny), pol("window", "fixed-window", local, deny),
		pol("bucket", "token-bucket", local, deny),
	}
	written := []policy.Policy{
		pol("log-of-all", "sliding-log", each, deny), pol("window-of-all", "fixed-window", each, deny),
		pol("log-that-allows", "sliding-log", each, allow),
	}
	compared := []policy.Policy{
		pol("bucket-of-all", "token-bucket", local, deny), pol("bucket-that-allows", "token-bucket", local, allow),
	}
	var f frozen
	for i := range r.stores {
		store := r.stores[i][0]
		f.within = append(f.within, regionEngine(t, store, frozenTimeout, policy.LevelLocalSerial, slices.Concat(goingOn, written)...))
		f.over = append(f.over, regionEngine(t, store, frozenTimeout, policy.LevelSerial, compared...))
	}
	f.waitServed(t, "before", goingOn, written, compared)

	for _, node := range []int{1, 2} {
		r.cluster.Node(node).Pause()
	}
	answered := f.answerAsPoliciesSay(t, written, compared)
	f.goesOn(t, goingOn)
	answered.addAll(f.waitSureThatNothingCounts(t))
	for _, node := range []int{1, 2} {
		r.cluster.Node(node).Resume()
	}

	r.cluster.WaitUp()
	f.waitServed(t, "after", goingOn, written, compared)
	answered.check(t, &f)
	for _, p := range slices.Concat(written, compared) {
		groups := [][]*limiter.Engine{{f.engine(p.Name, 0), f.engine(p.Name, 1)}}
		if p.OnStoreError == deny {
			wantUsedUp(t, groups, false, takenInTurn(t, groups, p.Name, "taker"))
			wantUsedUp(t, groups, true, takenInTurn(t, groups, p.Name, "later"))
		}
	}
}

// frozen are engines of two data centres, the second of which is frozen.
type frozen struct {
	within []*limiter.Engine // compare and set at LOCAL_SERIAL
	over   []*limiter.Engine // compare and set at SERIAL
}

// engine returns the one that a policy is decided by in a data centre.
func (f *frozen) engine(policy string, datacenter int) *limiter.Engine {
	e := f.within[datacenter]
	if _, ok := e.Policy(policy); !ok {
		e = f.over[datacenter]
	}
	return e
}

// waitServed returns when all policies are decided by the store in both data centres.
func (f *frozen) waitServed(t *testing.T, when string, policies ...[]policy.Policy) {
	t.Helper()
	for _, some := range policies {
		for _, p := range some {
			for i := range f.within {
				f.waitAdmitted(t, p.Name, i, keys.Identifier(fmt.Sprint(when, " ", i)), 1)
			}
		}
	}
}

// goesOn returns when the local data centre has admitted all of some limits.
func (f *frozen) goesOn(t *testing.T, policies []policy.Policy) {
	t.Helper()
	for _, p := range policies {
		for n := range regionKeys {
			f.waitAdmitted(t, p.Name, 0, keyOf(n), 1)
		}
		f.waitAdmitted(t, p.Name, 0, "meanwhile", regionLimit-1)
	}
}

// waitAdmitted takes until so many takes are admitted.
func (f *frozen) waitAdmitted(t *testing.T, policy string, datacenter int, id keys.Identifier, admitted int) {
	t.Helper()
	var d count.Decision
	var err error
	for start, n := time.Now(), 0; time.Since(start) < pausePatience; n++ {
		unique := keys.Identifier(fmt.Sprint(id, " ", n)) // what has no answer may count
		for i := 0; i < admitted; i++ {
			d, err = f.engine(policy, datacenter).Take(t.Context(), limiter.Demand{Policy: policy, Identifier: unique})
			if err != nil || !d.Allowed || d.Degraded {
				break
			}
			if i == admitted-1 {
				return
			}
		}
	}
	t.Fatalf("%s of %q in data centre %d: not %d admitted in %v: %+v, %v", policy, id, datacenter, admitted, pausePatience, d.Verdict, err)
}

// frozenOutcomes says by policy how often a record of one unit was answered how.
type frozenOutcomes map[string]*keyOutcome

func (o frozenOutcomes) of(policy string) *keyOutcome {
	if o[policy] == nil {
		o[policy] = new(keyOutcome)
	}
	return o[policy]
}

func (o frozenOutcomes) addAll(others frozenOutcomes) {
	for policy, more := range others {
		sum := o.of(policy)
		sum.admitted, sum.denied = sum.admitted+more.admitted, sum.denied+more.denied
		sum.unknown, sum.failed = sum.unknown+more.unknown, sum.failed+more.failed
	}
}

// answerAsPoliciesSay takes and records what cannot be stored in the frozen data
// centre, under all policies at the same time.
func (f *frozen) answerAsPoliciesSay(t *testing.T, policies ...[]policy.Policy) frozenOutcomes {
	t.Helper()
	answered := make(frozenOutcomes)
	var all sync.WaitGroup
	for _, some := range policies {
		for _, p := range some {
			records := answered.of(p.Name)
			e := f.engine(p.Name, 0)
			all.Go(func() {
				d, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "taker"})
				wantStoreError(t, &p, &d, err)
				d, err = e.Record(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "recorder"})
				wantStoreError(t, &p, &d, err)
				countRecord(records, &d, err)
			})
		}
	}
	all.Wait()
	return answered
}

// wantStoreError fails the test unless a decision that needs the frozen data centre was
// answered as its policy says, and nobody was told that it counts.
func wantStoreError(t *testing.T, p *policy.Policy, d *count.Decision, err error) {
	t.Helper()
	var failed *count.StoreError
	switch allows := p.OnStoreError == policy.OnStoreErrorAllow; {
	case allows && (err != nil || !d.Allowed || !d.Degraded || d.Recorded == count.RecordedYes):
		t.Errorf("%s: allowed %v, degraded %v, recorded %s, %v", p.Name, d.Allowed, d.Degraded, d.Recorded, err)
	case allows:
	case !errors.As(err, &failed) || failed.Recorded == count.RecordedYes || !errors.Is(err, store.ErrUnavailable):
		t.Errorf("%s: allowed %v, %v, want no answer", p.Name, d.Allowed, err)
	}
}

func countRecord(o *keyOutcome, d *count.Decision, err error) {
	recorded := d.Recorded
	if failed := (*count.StoreError)(nil); errors.As(err, &failed) {
		recorded = failed.Recorded
	}
	switch recorded {
	case count.RecordedYes:
		o.admitted++
	case count.RecordedNo:
		o.failed++
	default:
		o.unknown++
	}
}

// waitSureThatNothingCounts records in a counter until Cassandra knows that the data
// centre is gone, and says at once that nothing is stored.
func (f *frozen) waitSureThatNothingCounts(t *testing.T) frozenOutcomes {
	t.Helper()
	const policy = "window-of-all"
	answered := make(frozenOutcomes)
	var err error
	for start := time.Now(); time.Since(start) < pausePatience; {
		var d count.Decision
		d, err = f.engine(policy, 0).Record(t.Context(), limiter.Demand{Policy: policy, Identifier: "recorder"})
		countRecord(answered.of(policy), &d, err)
		if answered.of(policy).failed > 0 {
			return answered
		}
	}
	t.Fatalf("in doubt for %v: %v", pausePatience, err)
	return nil
}

// check compares what was answered to what is counted.
func (o frozenOutcomes) check(t *testing.T, f *frozen) {
	t.Helper()
	for policy, records := range o {
		var d count.Decision
		_, err := persist(func() (err error) {
			d, err = f.engine(policy, 1).Check(t.Context(), limiter.Demand{Policy: policy, Identifier: "recorder"})
			return err
		})
		if err != nil || d.Used < records.admitted || d.Used > records.admitted+records.unknown {
			t.Errorf("%s: used %d, %v, of %d records that count and %d in doubt", policy, d.Used, err, records.admitted, records.unknown)
		}
		t.Logf("%s: used %d: %d records count, %d don't, %d in doubt", policy, d.Used, records.admitted, records.failed, records.unknown)
	}
}
