package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/filewatch"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// security has the callers and certificates of the server's listeners, and keeps them up to date with their files.
type security struct {
	settings     *settings.Security
	keyring      *auth.Keyring
	callers      *auth.Watcher                    // nil: callers are not authenticated
	certificates *filewatch.Watcher[certificates] // nil: TLS is not spoken
	current      atomic.Pointer[tls.Config]
	renew        func() // is called when other authorities verify clients; set before run
	measured     *metrics.Metrics
	audit        *auditLog
	log          *slog.Logger
}

// certificates are the certificate of the server, and the authorities of clients.
type certificates struct {
	config *tls.Config
	expire time.Time // when the first of the clients' authorities expires; zero: clients are not verified
}

// openSecurity reads the files that the settings name.
func openSecurity(s *settings.Security, measured *metrics.Metrics, audit *auditLog, log *slog.Logger) (*security, error) {
	if err := checkTLS(s); err != nil {
		return nil, err
	}
	sec := &security{settings: s, keyring: auth.NewKeyring(s.TLSClientCA != ""), measured: measured, audit: audit, log: log}
	if s.AuthFile != "" {
		warnOfWriters(s.AuthFile, log)
		sec.callers = auth.NewWatcher(s.AuthFile)
		if _, err := sec.setCallers(sec.callers.Load()); err != nil {
			return nil, err
		}
		measured.SetReloaded(metrics.FileCallers, true)
	}
	if s.TLSCert != "" {
		command.WarnOfReaders("--tls-key-file", s.TLSKey, log)
		sec.certificates = newCertificates(s)
		if err := sec.setCertificates(sec.certificates.Load()); err != nil {
			return nil, err
		}
		measured.SetReloaded(metrics.FileCertificates, true)
	}
	return sec, nil
}

// checkTLS refuses settings of TLS that would have no effect.
func checkTLS(s *settings.Security) error {
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return errors.New("--tls-cert-file and --tls-key-file need each other")
	case s.TLSClientCA != "" && s.TLSCert == "":
		return errors.New("--tls-client-ca-file does nothing without TLS: add --tls-cert-file and --tls-key-file")
	}
	return nil
}

// warnOfWriters warns if other users of the machine may write the file of callers.
func warnOfWriters(path string, log *slog.Logger) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o022 != 0 {
		log.Warn("others may write the list of callers: take the right from them", "file", path, "mode", info.Mode().Perm())
	}
}

// mayListen returns an error if other machines could make any call at this address without authentication. flag is the
// flag of the address, such as "--listen". Every listener calls it first.
func (s *security) mayListen(flag, address string) error {
	switch {
	case isLoopback(address):
	case !s.keyring.Open():
		if s.certificates == nil {
			s.log.Warn("tokens travel in the clear: give --tls-cert-file and --tls-key-file, unless a proxy in front speaks TLS", "flag", flag)
		}
	case !s.settings.InsecureNoAuth:
		return fmt.Errorf("%s %s: other machines could ask for everything there, without authentication: "+
			"list callers by --auth-file, or verify clients by --tls-client-ca-file, or listen on 127.0.0.1; "+
			"--insecure-no-auth does it all the same", flag, address)
	default:
		s.log.Warn("there is no authentication (--insecure-no-auth): any client that reaches this address may use every route",
			"flag", flag, "address", address)
	}
	return nil
}

// isLoopback reports whether only this machine can reach an address of the form host:port.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// secured returns listener with TLS, unless config is nil.
func secured(listener net.Listener, config *tls.Config) net.Listener {
	if config == nil {
		return listener
	}
	return tls.NewListener(listener, config)
}

// scheme returns the scheme of the server's URLs.
func (s *security) scheme() string {
	if s.certificates == nil {
		return "http"
	}
	return "https"
}

// tlsConfig returns a configuration by which each handshake uses the certificates in force at that time, and offers
// protocol by ALPN: "http/1.1" or "h2". It returns nil without TLS.
func (s *security) tlsConfig(protocol string) *tls.Config {
	return s.tlsConfigBy(func(config *tls.Config) { config.NextProtos = []string{protocol} })
}

// publicTLS is tlsConfig for the public: it asks no client for a certificate, and offers all protocols.
func (s *security) publicTLS() *tls.Config {
	return s.tlsConfigBy(func(config *tls.Config) {
		config.NextProtos, config.ClientAuth, config.ClientCAs = []string{"h2", "http/1.1"}, tls.NoClientCert, nil
	})
}

// tlsConfigBy returns tlsConfig with the certificates in force as modified by change.
func (s *security) tlsConfigBy(change func(*tls.Config)) *tls.Config {
	if s.certificates == nil {
		return nil
	}
	var latest atomic.Pointer[[2]*tls.Config] // the one read from the files, and the one made of it
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			read := s.current.Load()
			made := latest.Load()
			if made == nil || made[0] != read {
				config := read.Clone()
				change(config)
				made = &[2]*tls.Config{read, config}
				latest.Store(made)
			}
			return made[1], nil
		},
	}
}

// setCallers puts callers in force. After an error, the earlier ones stay in force.
func (s *security) setCallers(callers *auth.Callers, err error) (*changes, error) {
	if err == nil && callers.Certificates() && s.settings.TLSClientCA == "" {
		err = fmt.Errorf("%s: some callers are known by their certificate, and none is asked for: give --tls-client-ca-file",
			s.settings.AuthFile)
	}
	if err != nil {
		return nil, err
	}
	var made *changes
	attrs := []slog.Attr{slog.Int("count", callers.Len())}
	if before := s.keyring.Callers(); before != nil { // else it is the start
		made = new(changes)
		made.Added, made.Removed, made.Changed = callers.Changes(before)
		attrs = append(attrs, made.attrs()...)
	}
	s.keyring.Set(callers)
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "callers in force", attrs...)
	if idle := callers.Idle(); len(idle) > 0 {
		s.log.Warn("callers may use no policy: list policies: for them, or write policies: any", "file", s.settings.AuthFile,
			"count", len(idle), "callers", idle[:min(len(idle), command.MaxLogged)])
	}
	return made, nil
}

// setCertificates puts read in force. After an error, the earlier certificates stay in force.
func (s *security) setCertificates(read certificates, err error) error {
	if err != nil {
		return err
	}
	config := read.config
	last := s.current.Swap(config)
	if last != nil && config.ClientCAs != nil && !config.ClientCAs.Equal(last.ClientCAs) {
		s.renew()
	}
	s.measured.SetExpiry(metrics.CertificateServer, config.Certificates[0].Leaf.NotAfter)
	s.measured.SetExpiry(metrics.CertificateClientCA, read.expire)
	s.log.Info("certificate in force", "expires", config.Certificates[0].Leaf.NotAfter, "clients_verified", config.ClientCAs != nil)
	return nil
}

// renewer returns a function that closes all connections of server, so that the current authorities verify new ones:
// idle connections at once, and others after their answer, within the write timeout. Meanwhile, every request needs a
// connection of its own. The function is not safe for concurrent use.
func renewer(server *http.Server) (renew func()) {
	again := time.AfterFunc(math.MaxInt64, func() { server.SetKeepAlivesEnabled(true) })
	return func() {
		server.SetKeepAlivesEnabled(false)
		again.Reset(server.ReadTimeout + server.WriteTimeout)
	}
}

// newCertificates returns a Watcher of the files of TLS.
func newCertificates(s *settings.Security) *filewatch.Watcher[certificates] {
	paths := []string{s.TLSCert, s.TLSKey}
	if s.TLSClientCA != "" {
		paths = append(paths, s.TLSClientCA)
	}
	return filewatch.New("certificates", paths, func(contents [][]byte) (read certificates, err error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return read, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		read.config = config
		if len(contents) < 3 {
			return read, nil
		}
		if config.ClientCAs, read.expire, err = command.Authorities(contents[2]); err != nil {
			return read, fmt.Errorf("--tls-client-ca-file: %s: %w", s.TLSClientCA, err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true // a resumed session would not be verified by the current authorities
		return read, nil
	})
}

// run watches the files until ctx ends.
func (s *security) run(ctx context.Context) error {
	var stages []stage
	if s.callers != nil {
		stages = append(stages, func(ctx context.Context) error {
			return s.callers.Run(ctx, func(callers *auth.Callers, err error) {
				made, err := s.setCallers(callers, err)
				s.reloaded(metrics.FileCallers, err, made)
			})
		})
	}
	if s.certificates != nil {
		stages = append(stages, func(ctx context.Context) error {
			return s.certificates.Run(ctx, func(read certificates, err error) {
				s.reloaded(metrics.FileCertificates, s.setCertificates(read, err), nil)
			})
		})
	}
	return together(append(stages, untilDone)...)(ctx)
}

// reloaded reports the outcome of a reload.
func (s *security) reloaded(what metrics.File, err error, made *changes) {
	s.measured.SetReloaded(what, err == nil)
	s.audit.reloaded(string(what), "file", err, made)
	if err != nil {
		s.log.Error(string(what)+" not reloaded, those in force stay", command.Mistakes(err)...)
	}
}

// reload reads the files anew.
func (s *security) reload() {
	if s.callers != nil {
		s.callers.Reload()
	}
	if s.certificates != nil {
		s.certificates.Reload()
	}
}
