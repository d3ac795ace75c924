package serve

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
)

// TestPeersKnowEachOther holds that an instance whose peers could be anybody does not start, and neither does one with
// a secret that is easily guessed.
func TestPeersKnowEachOther(t *testing.T) {
	secret := func(text string) string {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, test := range []struct {
		what     string
		peers    settings.Peers
		refuses  string // what the error says; empty: there is none
		protocol string
	}{
		{"alone", settings.Peers{}, "", "insecure"},
		{"this machine alone", settings.Peers{Listen: "127.0.0.1:8090"}, "", "insecure"},
		{"every machine", settings.Peers{Listen: ":8090"}, "give --peer-secret-file", ""},
		{"another machine", settings.Peers{Listen: "10.1.0.7:8090"}, "give --peer-secret-file", ""},
		{"with a secret", settings.Peers{Listen: "10.1.0.7:8090", SecretFile: secret("correct horse battery\n")}, "", "tls"},
		{"this machine, with a secret", settings.Peers{Listen: "127.0.0.1:8090", SecretFile: secret("correct horse battery\n")}, "", "tls"},
		{"a short secret", settings.Peers{Listen: "10.1.0.7:8090", SecretFile: secret("horse\n")}, "--peer-secret-file", ""},
		{"no such file", settings.Peers{Listen: "10.1.0.7:8090", SecretFile: "/no/such/file"}, "--peer-secret-file", ""},
	} {
		creds, err := peerCredentials(&test.peers, nil)
		switch {
		case test.refuses == "" && err != nil, test.refuses != "" && (err == nil || !strings.Contains(err.Error(), test.refuses)):
			t.Errorf("%s: error %v, want one that says %q", test.what, err, test.refuses)
		case err == nil && creds.Info().SecurityProtocol != test.protocol:
			t.Errorf("%s: peers speak %s, want %s", test.what, creds.Info().SecurityProtocol, test.protocol)
		}
	}
}

// TestAddressForPeers holds that others are told an address that leads to this instance.
func TestAddressForPeers(t *testing.T) {
	every, one := &net.TCPAddr{IP: net.IPv4zero, Port: 8090}, &net.TCPAddr{IP: net.IPv4(10, 1, 0, 7), Port: 8090}
	for _, test := range []struct {
		given   string
		listens net.Addr
		want    string // empty: it is refused
	}{
		{"", one, "10.1.0.7:8090"},
		{"limits-1.example.org:8090", one, "limits-1.example.org:8090"},
		{"10.1.0.7:8090", every, "10.1.0.7:8090"},
		{"", every, ""},
		{"", &net.TCPAddr{IP: net.IPv6unspecified, Port: 8090}, ""},
	} {
		got, err := addressForPeers(&settings.Peers{Address: test.given}, test.listens)
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("--peer-address %q, listening on %v: %q, error %v; want %q", test.given, test.listens, got, err, test.want)
		}
	}
}
