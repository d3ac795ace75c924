package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
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

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/filewatch"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// securitySettings say who may ask, and how it is told.
type securitySettings struct {
	authFile       string
	tlsCert        string
	tlsKey         string
	tlsClientCA    string
	insecureNoAuth bool
	hosts          api.Hosts
}

// security is who may reach the server's listeners, as the files say at any moment.
type security struct {
	settings     *securitySettings
	keyring      *auth.Keyring
	callers      *auth.Watcher                   // nil: nobody is asked who they are
	changes      *changes                        // of callers, that the last reload made; nil: there was none
	certificates *filewatch.Watcher[*tls.Config] // nil: TLS is not spoken
	current      atomic.Pointer[tls.Config]
	renew        []func() // called when clients are verified by other authorities
	audit        *auditLog
	log          *slog.Logger
}

// openSecurity reads the files that the settings name.
func openSecurity(s *securitySettings, audit *auditLog, log *slog.Logger) (*security, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	sec := &security{settings: s, keyring: auth.NewKeyring(s.tlsClientCA != ""), audit: audit, log: log}
	if s.authFile != "" {
		warnOfWriters(s.authFile, log)
		sec.callers = auth.NewWatcher(s.authFile)
		if err := sec.setCallers(sec.callers.Load()); err != nil {
			return nil, err
		}
	}
	if s.tlsCert != "" {
		sec.certificates = newCertificates(s)
		if err := sec.setCertificates(sec.certificates.Load()); err != nil {
			return nil, err
		}
	}
	return sec, nil
}

// check refuses settings that do not do what they seem to.
func (s *securitySettings) check() error {
	switch {
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return errors.New("--tls-cert-file and --tls-key-file need each other")
	case s.tlsClientCA != "" && s.tlsCert == "":
		return errors.New("--tls-client-ca-file does nothing without TLS: add --tls-cert-file and --tls-key-file")
	}
	return nil
}

// warnOfWriters warns if others may write who may ask.
func warnOfWriters(path string, log *slog.Logger) {
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o022 != 0 {
		log.Warn("others may write who may ask: take the right from them", "file", path, "mode", info.Mode().Perm())
	}
}

// mayListen refuses the address of a listener that everybody could reach and ask for
// everything. flag names the flag that the address was given by, such as "--listen".
// Every listener asks it first.
func (s *security) mayListen(flag, address string) error {
	switch {
	case isLoopback(address):
	case !s.keyring.Open():
		if s.certificates == nil {
			s.log.Warn("tokens travel in the clear: give --tls-cert-file and --tls-key-file, unless something in front speaks TLS", "flag", flag)
		}
	case !s.settings.insecureNoAuth:
		return fmt.Errorf("%s %s: other machines could ask for everything there, and nobody would be asked who they are: "+
			"list who may ask by --auth-file, or verify clients by --tls-client-ca-file, or listen on 127.0.0.1; "+
			"--insecure-no-auth does it all the same", flag, address)
	default:
		s.log.Warn("nobody is asked who they are (--insecure-no-auth): whoever reaches this address may ask for everything",
			"flag", flag, "address", address)
	}
	return nil
}

// isLoopback reports whether only this machine reaches an address, which is host:port.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || strings.EqualFold(host, "localhost")
}

// secure returns listener, with TLS where the settings ask for it, of which protocols are
// offered: "http/1.1", "h2".
func (s *security) secure(listener net.Listener, protocols ...string) net.Listener {
	if s.certificates == nil {
		return listener
	}
	return tls.NewListener(listener, s.tlsConfig(protocols...))
}

// secureForAll returns listener as secure does, but asks no client for a certificate: it is
// for the public.
func (s *security) secureForAll(listener net.Listener, protocols ...string) net.Listener {
	if s.certificates == nil {
		return listener
	}
	return tls.NewListener(listener, s.tlsConfigBy(func(config *tls.Config) {
		config.NextProtos, config.ClientAuth, config.ClientCAs = protocols, tls.NoClientCert, nil
	}))
}

// scheme returns the one of URLs.
func (s *security) scheme() string {
	if s.certificates == nil {
		return "http"
	}
	return "https"
}

// tlsConfig returns a configuration by which each handshake goes by the files as they are
// then. It is nil where TLS is not spoken.
func (s *security) tlsConfig(protocols ...string) *tls.Config {
	if s.certificates == nil {
		return nil
	}
	return s.tlsConfigBy(func(config *tls.Config) { config.NextProtos = protocols })
}

// tlsConfigBy returns a configuration that is made by change of what the files say at each
// handshake.
func (s *security) tlsConfigBy(change func(*tls.Config)) *tls.Config {
	var latest atomic.Pointer[[2]*tls.Config] // the one read from the files, and what is made of it
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

// setCallers puts in force what was read; on an error, what was in force stays.
func (s *security) setCallers(callers *auth.Callers, err error) error {
	if err == nil && callers.Certificates() && s.settings.tlsClientCA == "" {
		err = fmt.Errorf("%s: some callers are known by their certificate, and none is asked for: give --tls-client-ca-file",
			s.settings.authFile)
	}
	if err != nil {
		return err
	}
	attrs := []slog.Attr{slog.Int("count", callers.Len())}
	if before := s.keyring.Callers(); before != nil { // else it is the start
		s.changes = new(changes)
		s.changes.added, s.changes.removed, s.changes.changed = callers.Changes(before)
		attrs = append(attrs, s.changes.attrs()...)
	}
	s.keyring.Set(callers)
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "callers in force", attrs...)
	if idle := callers.Idle(); len(idle) > 0 {
		s.log.Warn("callers may use no policy: list policies: for them, or write policies: any", "file", s.settings.authFile,
			"count", len(idle), "callers", idle[:min(len(idle), maxNamesLogged)])
	}
	return nil
}

// setCertificates puts in force what was read; on an error, what was in force stays.
func (s *security) setCertificates(config *tls.Config, err error) error {
	if err != nil {
		return err
	}
	last := s.current.Swap(config)
	if last != nil && config.ClientCAs != nil && !config.ClientCAs.Equal(last.ClientCAs) {
		for _, renew := range s.renew {
			renew()
		}
	}
	s.log.Info("certificate in force", "expires", config.Certificates[0].Leaf.NotAfter, "clients_verified", config.ClientCAs != nil)
	return nil
}

// onNewAuthorities has renew called whenever clients are verified by other authorities
// than before. It must not be called while run runs.
func (s *security) onNewAuthorities(renew func()) { s.renew = append(s.renew, renew) }

// renewer returns what has all connections of server made anew, so that the authorities of
// today verify them: those that wait are closed at once, and each other one after its
// answer, which none takes longer for than the write timeout. Meanwhile, every request
// takes a connection of its own. It is not safe for concurrent use.
func renewer(server *http.Server) (renew func()) {
	again := time.AfterFunc(math.MaxInt64, func() { server.SetKeepAlivesEnabled(true) })
	return func() {
		server.SetKeepAlivesEnabled(false)
		again.Reset(server.ReadTimeout + server.WriteTimeout)
	}
}

// newCertificates returns a Watcher of the files of TLS.
func newCertificates(s *securitySettings) *filewatch.Watcher[*tls.Config] {
	paths := []string{s.tlsCert, s.tlsKey}
	if s.tlsClientCA != "" {
		paths = append(paths, s.tlsClientCA)
	}
	return filewatch.New("certificates", paths, func(contents [][]byte) (*tls.Config, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		if len(contents) < 3 {
			return config, nil
		}
		if config.ClientCAs, err = authorities(contents[2]); err != nil {
			return nil, fmt.Errorf("--tls-client-ca-file: %s: %w", s.tlsClientCA, err)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true // who resumes a session is not verified by the authorities of today
		return config, nil
	})
}

// authorities returns the certificates of a PEM file, all of them: one that can't be read or
// is cut off is an error.
func authorities(file []byte) (*x509.CertPool, error) {
	if len(file) > yamlfile.MaxSize {
		return nil, fmt.Errorf("it is longer than %d bytes", yamlfile.MaxSize)
	}
	pool, blocks, certificates := x509.NewCertPool(), 0, 0
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("its block %d: %w", blocks, err)
		}
		pool.AddCert(certificate)
		certificates++
	}
	switch begun := bytes.Count(file, []byte("-----BEGIN ")); {
	case blocks < begun:
		return nil, fmt.Errorf("of its %d blocks %d can be read: the others are damaged or cut off", begun, blocks)
	case certificates == 0:
		return nil, errors.New("there is no certificate in it: it must be PEM")
	}
	return pool, nil
}

// run watches the files until ctx ends.
func (s *security) run(ctx context.Context) error {
	var stages []stage
	if s.callers != nil {
		stages = append(stages, func(ctx context.Context) error {
			return s.callers.Run(ctx, func(callers *auth.Callers, err error) {
				s.changes = nil
				err = s.setCallers(callers, err)
				s.reloaded("callers", err, s.changes)
			})
		})
	}
	if s.certificates != nil {
		stages = append(stages, func(ctx context.Context) error {
			return s.certificates.Run(ctx, func(config *tls.Config, err error) {
				s.reloaded("certificates", s.setCertificates(config, err), nil)
			})
		})
	}
	return together(append(stages, untilDone)...)(ctx)
}

// reloaded logs what became of a reload.
func (s *security) reloaded(what string, err error, made *changes) {
	s.audit.reloaded(what, err, made)
	if err != nil {
		s.log.Error(what+" not reloaded, those in force stay", mistakesIn(err)...)
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
