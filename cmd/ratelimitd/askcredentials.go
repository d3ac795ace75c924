package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// tokenVariable holds the token that is shown to a server. It is no flag: a command line
// is there for everybody on the machine to read.
const tokenVariable = envPrefix + "TOKEN"

// credentials are what is shown to a server, and whom to trust as one.
type credentials struct {
	tokenFile string
	ca        string
	cert, key string

	token string      // from the file or the environment; empty: none
	tls   *tls.Config // nil: the system's authorities, and no certificate
}

func (c *credentials) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.tokenFile, "token-file", "", "`file` that holds the token to show (or "+tokenVariable+" does)")
	flags.StringVar(&c.ca, "server-ca-file", "", "PEM `file` of the authorities to trust (default: the system's)")
	flags.StringVar(&c.cert, "client-cert-file", "", "PEM `file` of the certificate to show")
	flags.StringVar(&c.key, "client-key-file", "", "PEM `file` of its key")
}

// read reads what the flags and the environment name.
func (c *credentials) read(environ []string) error {
	for _, entry := range environ {
		if token, found := strings.CutPrefix(entry, tokenVariable+"="); found && token != "" {
			c.token = token
		}
	}
	var tokenErr error
	switch {
	case c.token != "" && c.tokenFile != "":
		tokenErr = errors.New("both " + tokenVariable + " and --token-file are set: keep one of them")
	case c.tokenFile != "":
		c.token, tokenErr = readToken(c.tokenFile)
	}
	if c.token != "" && tokenErr == nil {
		if _, err := headerText(c.token); err != nil {
			tokenErr = errors.New("the token is none: it has bytes that no header may have, or more than 255")
		}
	}
	var tlsErr error
	if c.ca != "" || c.cert != "" || c.key != "" {
		c.tls, tlsErr = clientTLS(clientFiles{"--server-ca-file", c.ca, "--client-cert-file", c.cert, "--client-key-file", c.key})
	}
	return errors.Join(tokenErr, tlsErr)
}

func readToken(path string) (string, error) {
	data, err := yamlfile.Read(path)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("there is no token in %s", path)
	}
	return token, nil
}

// show adds the token to the headers of a request.
func (c *credentials) show(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}

// clientFiles are the files of a client of TLS, each after the flag that names it; empty:
// there is none.
type clientFiles struct{ caFlag, ca, certFlag, cert, keyFlag, key string }

// clientTLS returns how to speak TLS by files.
func clientTLS(f clientFiles) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.caFlag, err)
		}
		if config.RootCAs, err = authorities(pem); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", f.caFlag, f.ca, err)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New(f.certFlag + " and " + f.keyFlag + " need each other")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("reading %s and %s: %w", f.certFlag, f.keyFlag, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
