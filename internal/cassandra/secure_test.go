package cassandra_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// TestUserPasswordAndTLS speaks to a node that asks for a password and shows a
// certificate.
func TestUserPasswordAndTLS(t *testing.T) {
	t.Parallel()
	keystore, authorities := newKeystore(t)
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{Config: map[string]string{
		"authenticator": "PasswordAuthenticator",
		"client_encryption_options": "{enabled: true, optional: true, keystore: " + keystore +
			", keystore_password: " + keystorePassword + "}",
	}})
	right := cassandra.Config{
		Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Timeout: 10 * time.Second,
		Username: "cassandra", Password: "cassandra",
		TLS: &tls.Config{RootCAs: authorities, ServerName: "localhost", MinVersion: tls.VersionTLS12},
	}
	store := newStore(t, right)
	if err := store.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		change  func(*cassandra.Config)
		mistake bool // or else it may pass, as when certificates are changed
	}{
		"a wrong password":          {func(c *cassandra.Config) { c.Password = "wrong" }, true},
		"no password":               {func(c *cassandra.Config) { c.Username = "" }, true},
		"an authority of one's own": {func(c *cassandra.Config) { c.TLS = c.TLS.Clone(); c.TLS.RootCAs = x509.NewCertPool() }, false},
		"another server's name":     {func(c *cassandra.Config) { c.TLS = c.TLS.Clone(); c.TLS.ServerName = "elsewhere" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := right
			test.change(&config)
			store, err := cassandra.Open(t.Context(), config)
			if err == nil {
				store.Close()
				t.Fatal("connected")
			}
			if cassandra.IsMistake(err) != test.mistake {
				t.Errorf("a mistake: %v, of %v", !test.mistake, err)
			}
			t.Log(err)
		})
	}
}

const keystorePassword = "of-a-test"

// newKeystore makes a self-signed certificate for localhost with Java's keytool.
func newKeystore(t *testing.T) (file string, authorities *x509.CertPool) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a Cassandra")
	}
	if _, err := exec.LookPath("keytool"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("it needs Java, whose keytool makes the node's certificate")
	}
	dir := t.TempDir()
	file, certificate := filepath.Join(dir, "keystore.p12"), filepath.Join(dir, "certificate.pem")
	common := []string{"-keystore", file, "-storepass", keystorePassword, "-alias", "node"}
	for _, command := range [][]string{
		append([]string{"-genkeypair", "-keyalg", "RSA", "-validity", "30", "-storetype", "PKCS12",
			"-dname", "CN=localhost", "-ext", "SAN=dns:localhost"}, common...),
		append([]string{"-exportcert", "-rfc", "-file", certificate}, common...),
	} {
		if out, err := exec.Command("keytool", command...).CombinedOutput(); err != nil {
			t.Fatalf("keytool %s: %v\n%s", command[0], err, out)
		}
	}
	pem, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	authorities = x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		t.Fatal("keytool wrote no certificate")
	}
	return file, authorities
}
