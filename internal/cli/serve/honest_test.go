package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// callers are honest: each takes now and then, for an identifier of its own, and waits
// for the answer.
type callers struct {
	url      string
	client   *http.Client
	answered [4]int64 // by caller
	unsure   [4]int64
}

func newCallers(url string) *callers {
	return &callers{url: url, client: &http.Client{Timeout: clitest.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
}

func (c *callers) close() { c.client.CloseIdleConnections() }

// service is how callers were served for a while.
type service struct {
	took   []time.Duration
	failed int
	err    error // the last one
}

// quantile returns the time that so many percent of the calls took at most.
func (s *service) quantile(percent int) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[(len(s.took)-1)*percent/100].Round(10 * time.Microsecond)
}

// callFor lets all of them call for a while, and at least once.
func (c *callers) callFor(ctx context.Context, lasts time.Duration) *service {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	s := new(service)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range c.answered {
		all.Go(func() {
			for first := true; first || ctx.Err() == nil; first = false {
				began := time.Now()
				err := c.take(i)
				took := time.Since(began)
				mu.Lock()
				if err == nil {
					s.took = append(s.took, took)
				} else {
					s.failed, s.err = s.failed+1, err
				}
				mu.Unlock()
				pauseFor(ctx, 10*time.Millisecond)
			}
		})
	}
	all.Wait()
	return s
}

// take makes caller i's call.
func (c *callers) take(i int) error {
	status, _, err := c.post("take", i)
	switch {
	case err != nil: // it may count
		c.unsure[i]++
		return err
	case status != http.StatusOK:
		return fmt.Errorf("status %d", status)
	}
	c.answered[i]++
	return nil
}

func (c *callers) post(verb string, i int) (status int, body []byte, err error) {
	about := fmt.Sprintf(`{"policy":"honest","identifier":"caller %d"}`, i)
	resp, err := c.client.Post(c.url+"/v1/"+verb, "application/json", strings.NewReader(about))
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// check makes sure that every answered call is counted, once.
func (c *callers) check(t *testing.T) {
	t.Helper()
	for i := range c.answered {
		_, body, err := c.post("check", i)
		var decision struct{ Used int64 }
		if err == nil {
			err = json.Unmarshal(body, &decision)
		}
		if err != nil || decision.Used < c.answered[i] || decision.Used > c.answered[i]+c.unsure[i] {
			t.Errorf("caller %d: %d calls were answered, %d of unknown outcome, and %d are counted: %v",
				i, c.answered[i], c.unsure[i], decision.Used, err)
		}
	}
}

// sight is what can be seen of a process.
type sight struct{ residentBytes, connections, fds, goroutines int }

var gauge = regexp.MustCompile(`(?m)^(\w+) (\S+)$`)

// look asks the process for its metrics, and reports false where that has no room for them: s is only what
// the machine tells then.
func (p *process) look(t *testing.T) (s sight, answered bool) {
	t.Helper()
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)) // none where there is no /proc
	s.fds = len(fds)
	pages, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if sizes := strings.Fields(string(pages)); len(sizes) > 1 {
		resident, _ := strconv.Atoi(sizes[1])
		s.residentBytes = resident * os.Getpagesize()
	}
	resp, err := http.Get(p.url + "/metrics")
	if err != nil {
		t.Error(err)
		return s, false
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return s, false
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	into := map[string]*int{"ratelimitd_http_connections": &s.connections, "go_goroutines": &s.goroutines}
	for _, m := range gauge.FindAllStringSubmatch(string(text), -1) {
		if n, known := into[m[1]]; known {
			f, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Error(err)
			}
			*n = int(f)
		}
	}
	return s, true
}
