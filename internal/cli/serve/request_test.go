package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestLimitFromRequestOnThreeInstances holds that three instances over one Cassandra count a caller's calls together, each
// up to the limit that it brings, whichever instance is asked and owns the key, and also once an instance has died.
func TestLimitFromRequestOnThreeInstances(t *testing.T) {
	text, names := "policies:\n", []string{"sliding-log", "sliding-tail", "sliding-window", "fixed-window"}
	for _, guarantee := range []string{"counted", "local"} {
		for _, name := range names {
			text += fmt.Sprintf("  - name: %s-%s\n    guarantee: %s\n    limits: [{algorithm: %s, limit: {from: request, max: 9, default: 1}, "+
				"window: 31d}]\n", name, guarantee, guarantee, name)
		}
	}
	s := &trio{flags: onCassandra(t, "--policies="+clitest.Write(t, "p.yaml", text), "--peer-listen=127.0.0.1:0")}
	s.start(t, 3)
	for _, p := range s.all {
		p.awaitMembers(t, 3)
	}
	s.wantTogether(t, "three", []string{"counted", "local"}, names)
	s.end(t, syscall.SIGKILL)
	for _, p := range s.all { // nobody can tell of a take on its way to the one that died whether it counts
		p.awaitMembers(t, 2)
	}
	s.wantTogether(t, "two", []string{"counted", "local"}, names)
}

// wantTogether takes for several callers of each policy, of one instance after the other, by several limits.
func (s *trio) wantTogether(t *testing.T, identifier string, guarantees, names []string) {
	t.Helper()
	for _, guarantee := range guarantees {
		for _, name := range names {
			for caller := range 2 {
				id := fmt.Sprintf("%s-%d", identifier, caller)
				for i, step := range []struct {
					limit, status int
				}{
					{0, 200}, {0, 429}, {3, 200}, {2, 429}, {2, 429}, {3, 200}, {3, 429}, {3, 429},
					{0, 429}, {5, 200}, {3, 429}, {5, 200}, {5, 429}, {5, 429},
				} {
					status, answer := s.takeBy(t, name+"-"+guarantee, id, step.limit)
					if want := fmt.Sprintf(`"limit":%d,`, max(1, step.limit)); status != step.status || !strings.Contains(answer, want) {
						t.Fatalf("%s-%s, %s, step %d, limit %d: %d %s", name, guarantee, id, i, step.limit, status, answer)
					}
				}
			}
		}
	}
}

// takeBy takes of the next instance by a limit, 0 for none. A call that was surely not decided is made again.
func (s *trio) takeBy(t *testing.T, policy, identifier string, limit int) (status int, answer string) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q`, policy, identifier)
	if limit > 0 {
		body += fmt.Sprintf(`, "limit": %d`, limit)
	}
	for late := time.Now().Add(clitest.Patience); time.Now().Before(late); <-time.After(20 * time.Millisecond) {
		s.turn++
		resp, err := http.Post(s.all[s.turn%len(s.all)].url+"/v1/take", "application/json", strings.NewReader(body+"}"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), `"recorded":"no"`) {
			return resp.StatusCode, string(text)
		}
	}
	t.Fatal("nobody decides")
	return 0, ""
}
