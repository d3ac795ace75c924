package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// editionOf returns policies whose limits tell which edition they are of.
func editionOf(edition int) string {
	return fmt.Sprintf("policies:\n"+
		"  - {name: a, limits: [{algorithm: sliding-log, limit: %d, window: 1h}]}\n"+
		"  - {name: b, limits: [{algorithm: sliding-tail, limit: %d, window: 1h}]}\n", 1000+edition, 2000+edition)
}

// putPolicies makes text the latest version over p, and returns its number and the status.
func putPolicies(t *testing.T, url, text, ifMatch string) (version int64, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/v1/policies", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	r.Header.Set("If-Match", ifMatch)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ Version int64 }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	return made.Version, resp.StatusCode
}

// decidedBy is the edition that a call was decided by.
type decidedBy struct {
	Policy, Recorded string
	Limits           []struct{ Limit, Remaining int64 }
	Demands          []decidedBy
}

// edition returns the edition that decided about a new identifier. It is false for one that is by
// several: the limit that is told is one's, and what is left of it another's.
func (d *decidedBy) edition() (edition int64, one bool) {
	l := d.Limits[0]
	edition = l.Limit - 1000
	if d.Policy == "b" {
		edition = l.Limit - 2000
	}
	return edition, l.Remaining == l.Limit-1
}

// newcomer takes for a new identifier, from both policies at once or from one. There is none where the
// call was not decided.
func newcomer(ctx context.Context, url string, n int64) *decidedBy {
	body := fmt.Sprintf(`{"policy": "a", "identifier": "newcomer-%d"}`, n)
	if n%3 > 0 {
		body = fmt.Sprintf(`{"demands": [{"policy": "a", "identifier": "newcomer-%d"}, {"policy": "b", "identifier": "newcomer-%d"}]}`, n, n)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/take", strings.NewReader(body))
	if err != nil {
		return nil
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	d := new(decidedBy)
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(d) != nil {
		return nil
	}
	return d
}

// editions are callers of several instances, and their answers while policies change.
type editions struct {
	t     *testing.T
	urls  atomic.Pointer[[]string]
	calls atomic.Int64

	mu      sync.Mutex
	current int64     // edition that was applied last
	since   time.Time // when that was answered
	decided int
	seen    map[int64]int // calls by edition
	latest  time.Duration // by which a call was decided by an earlier edition after the answer
	settled bool          // every instance has the current one in force, since then
}

// call makes calls until ctx ends.
func (e *editions) call(ctx context.Context) {
	for ctx.Err() == nil {
		n, urls := e.calls.Add(1), *e.urls.Load()
		began := time.Now()
		d := newcomer(ctx, urls[n%int64(len(urls))], n)
		<-time.After(5 * time.Millisecond) // so that a busy node has time for versions
		if d == nil {
			continue
		}
		demands := d.Demands
		if demands == nil {
			demands = []decidedBy{*d}
		}
		e.decidedBy(demands, began)
	}
}

func (e *editions) decidedBy(demands []decidedBy, began time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first, _ := demands[0].edition()
	for i := range demands {
		if edition, one := demands[i].edition(); edition != first || !one {
			e.t.Errorf("a call was decided by a mixture: %+v", demands)
		}
	}
	e.decided++
	e.seen[first]++
	if first != e.current && began.After(e.since) {
		if e.settled {
			e.t.Errorf("a call was decided by edition %d though every instance had %d in force", first, e.current)
		}
		e.latest = max(e.latest, began.Sub(e.since))
	}
}

// awaitSeen waits until a call was decided by an edition.
func (e *editions) awaitSeen(edition int64) {
	e.t.Helper()
	seen := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.seen[edition] > 0
	}
	for late := time.Now().Add(clitest.Patience); !seen(); <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			e.t.Fatalf("no call was decided by edition %d", edition)
		}
	}
}

// settle says that every instance has the current edition in force: calls that begin now are decided by it.
func (e *editions) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since, e.settled = time.Now(), true
}

// awaitPolicies waits until p has a version in force, which is told as an ETag.
func (p *process) awaitPolicies(t *testing.T, etag string) {
	t.Helper()
	line := "\nratelimitd_policies_version " + strings.Trim(etag, `"`) + "\n"
	for late := time.Now().Add(clitest.Patience); !strings.Contains(p.metrics(t), line); <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("version %s is not in force", etag)
		}
	}
}

// apply makes an edition the latest version over the instance at url.
func (e *editions) apply(url string, edition int64, version string) string {
	e.t.Helper()
	number, status := putPolicies(e.t, url, editionOf(int(edition)), version)
	if status != http.StatusOK {
		e.t.Fatalf("edition %d: status %d", edition, status)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current, e.since = edition, time.Now()
	return `"` + strconv.FormatInt(number, 10) + `"`
}

// TestNoCallIsDecidedByAMixtureOfVersions applies policies and rolls them back under load on three instances, one of which
// is killed in between: every call is decided by one version, and by the latest once
// all have it in force. How soon that is, a test on a simulated clock holds (TestVersionsComeIntoForce).
func TestNoCallIsDecidedByAMixtureOfVersions(t *testing.T) {
	flags := onCassandra(t, "--log-level=warn", "--peer-listen=127.0.0.1:0", "--store-timeout=5s")
	var all []*process
	for range 3 {
		all = append(all, startProcess(t, flags...))
	}
	for _, p := range all {
		p.awaitMembers(t, 3)
	}
	e := &editions{t: t, seen: make(map[int64]int)}
	urls := []string{all[0].url, all[1].url, all[2].url}
	e.urls.Store(&urls)
	version := e.apply(all[0].url, 1, `"0"`)
	for _, p := range all {
		p.awaitPolicies(t, version)
	}
	if _, status := putPolicies(t, all[1].url, editionOf(2), `"0"`); status != http.StatusPreconditionFailed {
		t.Errorf("a lost race: status %d", status)
	}
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 6 {
		callers.Go(func() { e.call(ctx) })
	}
	for round := range int64(4) {
		version = e.apply(all[round%2].url, 2+round, version)
		if round == 1 {
			left := urls[:2]
			e.urls.Store(&left)
			all[2].end(t, syscall.SIGKILL)
		}
		<-time.After(700 * time.Millisecond) // too soon for every instance to have heard of it
		e.awaitSeen(2 + round)
		version = e.apply(all[(round+1)%2].url, 1, version) // which rolls back
		<-time.After(1500 * time.Millisecond)
	}
	version = e.apply(all[0].url, 9, version)
	for _, p := range all[:2] {
		p.awaitPolicies(t, version)
	}
	e.settle()
	late := startReady(t, flags...)
	d := newcomer(ctx, late.url, -1)
	for ; d == nil; d = newcomer(ctx, late.url, e.calls.Add(1)) {
		<-time.After(10 * time.Millisecond)
	}
	demand := d
	if d.Demands != nil {
		demand = &d.Demands[0]
	}
	if edition, _ := demand.edition(); edition != 9 {
		t.Errorf("an instance that came later and was ready decided by edition %d", edition)
	}
	stop()
	callers.Wait()
	t.Logf("%d calls were decided of %d, by edition %v; %v after the answer the last one by an earlier edition",
		e.decided, e.calls.Load(), e.seen, e.latest)
	if e.seen[1] == 0 {
		t.Error("no call was decided by the edition that was rolled back to")
	}
	for _, p := range []*process{all[0], all[1], late} {
		p.end(t, syscall.SIGTERM)
	}
}

// isReady reports whether readyz is 200.
func (p *process) isReady(t *testing.T) bool {
	t.Helper()
	resp, err := http.Get(p.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestInstanceThatStoodStillCatchesUpBeforeItIsReady stops an instance while policies change: the first time that it says
// that it is ready, it goes by the latest.
func TestInstanceThatStoodStillCatchesUpBeforeItIsReady(t *testing.T) {
	flags := onCassandra(t, "--log-level=warn", "--store-timeout=2s")
	stands, other := startProcess(t, flags...), startProcess(t, flags...)
	if _, status := putPolicies(t, stands.url, editionOf(1), `"0"`); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if err := stands.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, status := putPolicies(t, other.url, editionOf(2), "*"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	<-time.After(3 * time.Second) // of the processes' time
	if err := stands.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for deadline := time.Now().Add(clitest.Patience); !stands.isReady(t); refused++ {
		if time.Now().After(deadline) {
			t.Fatal("it is not ready again")
		}
	}
	resp, err := http.Get(stands.url + "/v1/policies")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("ETag"); got != `"2"` {
		t.Errorf("it is ready with version %s, after %d times that it was not", got, refused)
	}
	for _, p := range []*process{stands, other} {
		p.end(t, syscall.SIGTERM)
	}
}
