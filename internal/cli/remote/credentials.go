package remote

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// credentials are the caller's token and certificate, and the authorities that verify the server.
type credentials struct {
	tokenFile string
	ca        string
	cert, key string

	token string      // from the file or the environment; empty: none
	tls   *tls.Config // nil: the system's authorities, and no certificate
}

func (c *credentials) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.tokenFile, "token-file", "", "`file` that holds the token to send; or set "+command.TokenVariable)
	flags.StringVar(&c.ca, "server-ca-file", "", "PEM `file` of the authorities to trust (default: the system's)")
	flags.StringVar(&c.cert, "client-cert-file", "", "PEM `file` of the client certificate")
	flags.StringVar(&c.key, "client-key-file", "", "PEM `file` of the key of --client-cert-file")
}

// read reads the files and variables that the flags and the environment name.
func (c *credentials) read(p *command.Process, log *slog.Logger) error {
	command.WarnOfReaders("--client-key-file", c.key, log)
	c.token = command.Secret(p.Getenv(command.TokenVariable))
	var tokenErr error
	switch {
	case c.token != "" && c.tokenFile != "":
		tokenErr = errors.New("both " + command.TokenVariable + " and --token-file are set: keep one of them")
	case c.tokenFile != "":
		c.token, tokenErr = command.ReadSecret("--token-file", c.tokenFile, log)
	}
	if c.token != "" && tokenErr == nil {
		if _, err := HeaderText(c.token); err != nil {
			tokenErr = errors.New("the token is not valid: it has more than 255 bytes, or some that a header may not have")
		}
	}
	var tlsErr error
	if c.ca != "" || c.cert != "" || c.key != "" {
		c.tls, _, tlsErr = command.ClientTLS(command.ClientFiles{
			CAFlag: "--server-ca-file", CA: c.ca,
			CertFlag: "--client-cert-file", Cert: c.cert,
			KeyFlag: "--client-key-file", Key: c.key,
		})
	}
	return errors.Join(tokenErr, tlsErr)
}

// show adds the token to the headers of a request.
func (c *credentials) show(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}
