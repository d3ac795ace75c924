package serve_test

import (
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// TestPageOfOneOfTwo has two instances on one Cassandra: the page of the one knows the other, how its clock is and what it
// decided itself.
func TestPageOfOneOfTwo(t *testing.T) {
	flags := agreeing(t, strings.Join(cassandratest.Hosts(t), ","), rand.Text(), 2, "--ui", "--peer-listen=127.0.0.1:0")
	one := start(t, nil, flags...)
	start(t, nil, flags...)
	for range 3 {
		one.Take(t, "sms")
	}
	again, late := time.NewTicker(50*time.Millisecond), time.After(clitest.Patience)
	defer again.Stop()
	for {
		var state ui.State
		text := one.Body(t, "/ui/state")
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			t.Fatal(err)
		}
		if knowsTheOther(&state) && state.Store.Latency.P99MS != nil && state.Clock.OffsetMS != nil && state.Decisions.Denied >= 1 {
			break
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatal(text)
		}
	}
	code, stdout, stderr := clitest.Execute(t, nil, "top", "--once", "--server="+one.URL)
	if code != 0 || strings.Count(stdout, "127.0.0.1:") != 3 || strings.Count(stdout, "(asked)") != 1 {
		t.Errorf("exit code %d, %s, output\n%s", code, stderr, stdout)
	}
}

// knowsTheOther reports whether one of two members, of which this is one, owns all keys.
func knowsTheOther(s *ui.State) bool {
	if s.Members == nil || len(s.Members.List) != 2 || !s.Members.Installed {
		return false
	}
	a, b := s.Members.List[0], s.Members.List[1]
	return a.Self != b.Self && max(a.Share, b.Share) == 1 && a.Share+b.Share == 1
}
