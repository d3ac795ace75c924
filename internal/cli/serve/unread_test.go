package serve_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

var highWater = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

// mostResident returns how many bytes the process had in memory at most; 0: it is not known here.
func (p *process) mostResident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	found := highWater.FindSubmatch(text)
	if err != nil || found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// TestUnreadAnswersAreBounded has 40 clients post the batch with the longest answer there is, again
// and again, and read nothing: the service takes no more memory than it says, and answers others. With -abuse
// it does so for as long as each kind of abuse lasts.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const clients, most = 40, 3 << 29 // 1.5 GiB
	var policies, demands strings.Builder
	policies.WriteString(abusePolicies)
	for i := range 16 {
		fmt.Fprintf(&policies, "  - name: p%d\n    limits:\n", i)
		for j := range 16 {
			fmt.Fprintf(&policies, "      - {algorithm: fixed-window, limit: %d, window: %dm}\n", 1000+j, 1+j)
		}
		if i > 0 {
			demands.WriteByte(',')
		}
		fmt.Fprintf(&demands, `{"policy":"p%d","identifier":"x"}`, i)
	}
	call := `{"op":"check","demands":[` + demands.String() + `]}`
	batch := request("/v1/batch", `{"operations":[`+strings.Repeat(call+",", 999)+call+"]}")
	p := startProcess(t, "--policies="+clitest.Write(t, "p.yaml", policies.String()), "--log-level=error")
	var conns []net.Conn
	for range clients {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		go func() {
			for {
				if _, err := io.WriteString(conn, batch); err != nil {
					return // the test is over
				}
			}
		}()
	}
	lasts := 2 * time.Second
	if *abuse {
		lasts = *abuseTime
	}
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	callers := newCallers(p.url)
	defer callers.close()
	served := callers.callFor(ctx, lasts)
	if served.failed > 0 {
		t.Errorf("%d honest calls were not answered: %v", served.failed, served.err)
	}
	got := p.mostResident(t)
	t.Logf("%d MiB at most, %d honest calls", got>>20, len(served.took))
	if got > most {
		t.Errorf("%d MiB are resident", got>>20)
	}
}
