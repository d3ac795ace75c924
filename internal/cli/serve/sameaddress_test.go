package serve_test

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestOneAddressForTwo starts a second instance with the first one's --peer-address, as when both are given a load balancer's: it
// ends and says why, and the first one decides as before.
func TestOneAddressForTwo(t *testing.T) {
	address := freeAddress(t)
	flags := onCassandra(t)
	first := start(t, nil, append(flags, "--peer-listen="+address)...)
	first.waitReady(t)
	second := start(t, nil, append(flags, "--peer-listen=127.0.0.1:0", "--peer-address="+address)...)
	if code := second.Wait(t); code == 0 || !strings.Contains(second.Log.String(), "another living instance has this address") {
		t.Errorf("the second instance ends with %d:\n%s", code, second.Log)
	}
	first.waitReady(t)
	for i := range 20 {
		if code, _, stderr := clitest.Execute(t, nil, "take", "login", strings.Repeat("a", i+1), "--server="+first.URL); code != 0 {
			t.Errorf("take %d: exit code %d: %s", i, code, stderr)
		}
	}
}
