package serve_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStrangersAtThePeerPort opens two thousand connections to --peer-listen that never show the secret, while the
// process may have 512 descriptors: it answers, and has closed most of them.
func TestStrangersAtThePeerPort(t *testing.T) {
	const strangers, descriptors = 2000, "512"
	secret := filepath.Join(t.TempDir(), "peers.secret")
	if err := os.WriteFile(secret, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	flags := onCassandra(t, "--peer-listen="+address, "--peer-secret-file="+secret)
	limited := []string{"-c", `ulimit -n ` + descriptors + `; exec "$0" "$@"`, os.Args[0], "serve", "--listen=127.0.0.1:0"}
	p := launch(t, exec.Command("sh", append(limited, flags...)...))

	for range strangers {
		conn, err := net.DialTimeout("tcp", address, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	resp, err := client.Get(p.url + "/healthz")
	if err != nil {
		t.Fatalf("with %d strangers: %v", strangers, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with %d strangers healthz is %d", strangers, resp.StatusCode)
	}
	for began := time.Now(); !strings.Contains(p.metrics(t), `ratelimitd_peer_turned_away_total{bound="idle"} 1`); { // and some more digits
		if time.Since(began) > time.Minute { // until the strangers that the kernel let in are accepted
			t.Fatal("no metric tells that connections were closed for new ones")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
