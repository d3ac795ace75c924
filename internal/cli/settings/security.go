package settings

import (
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Security has the settings of callers and their authentication.
type Security struct {
	AuthFile       string    // of callers; empty: there is no authentication
	TLSCert        string    // file; empty: TLS is not spoken
	TLSKey         string    // file
	TLSClientCA    string    // file; empty: clients need no certificate
	InsecureNoAuth bool      // listen where other machines reach it, all the same
	Hosts          api.Hosts // names of the server
}

func (s *Security) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.AuthFile, "auth-file", "", "YAML `file` of callers: digests of their tokens, and their permissions")
	flags.StringVar(&s.TLSCert, "tls-cert-file", "",
		"PEM `file` of this server's certificate and its intermediates; turns TLS on")
	flags.StringVar(&s.TLSKey, "tls-key-file", "", "PEM `file` of the key of --tls-cert-file")
	flags.StringVar(&s.TLSClientCA, "tls-client-ca-file", "", "PEM `file` of authorities: each client needs a certificate from one of them")
	flags.BoolVar(&s.InsecureNoAuth, "insecure-no-auth", false,
		"allow an address that other machines reach, without authentication")
	command.Var(flags, &s.Hosts, "allowed-hosts", "", "names",
		"names of this server, separated by commas: without authentication, requests for names other than these and localhost are refused",
		api.ParseHosts)
}
