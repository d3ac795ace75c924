package settings

import (
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Security says who may ask, and how it is told.
type Security struct {
	AuthFile       string    // of callers; empty: nobody is asked who they are
	TLSCert        string    // file; empty: TLS is not spoken
	TLSKey         string    // file
	TLSClientCA    string    // file; empty: clients need no certificate
	InsecureNoAuth bool      // listen where other machines reach it, all the same
	Hosts          api.Hosts // names of the server
}

func (s *Security) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.AuthFile, "auth-file", "", "YAML `file` of callers: digests of their tokens, and what they may ask for")
	flags.StringVar(&s.TLSCert, "tls-cert-file", "",
		"PEM `file` of this server's certificate and those that lead to its authority: TLS is spoken then")
	flags.StringVar(&s.TLSKey, "tls-key-file", "", "PEM `file` of its key")
	flags.StringVar(&s.TLSClientCA, "tls-client-ca-file", "", "PEM `file` of authorities: clients must show a certificate of one of them")
	flags.BoolVar(&s.InsecureNoAuth, "insecure-no-auth", false,
		"listen where other machines reach it, although nobody is asked who they are")
	command.Var(flags, &s.Hosts, "allowed-hosts", "", "names",
		"of this server, with commas between: where nobody is asked who they are, requests to other names than these and localhost are refused",
		api.ParseHosts)
}
