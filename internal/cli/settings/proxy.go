package settings

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// Proxy has the settings of the command proxy beside those of serve.
type Proxy struct {
	Listen   string        // HTTP address for clients
	Upstream *url.URL      // nil: there is no proxy
	Timeout  time.Duration // until the answer of the application begins
	Requests int           // under way at the same time
	Keep     []string      // headers that are passed on though they override the method or the path
}

// Proxies reports whether there is an application to pass requests on to.
func (s *Settings) Proxies() bool { return s.Proxy.Upstream != nil }

// Bounds of --upstream-timeout. Work of more than an hour should not be done within a request.
const (
	minUpstreamTimeout = 10 * time.Millisecond
	maxUpstreamTimeout = time.Hour
)

// AddProxyFlags adds the flags of the proxy.
func (s *Settings) AddProxyFlags(flags *pflag.FlagSet) {
	command.Var(flags, &s.Proxy.Listen, "proxy-listen", "127.0.0.1:8000", "address", "HTTP address for clients; port 0 takes any free port",
		command.Address)
	command.Var(flags, &s.Proxy.Upstream, "upstream", "", "URL", "URL of the application: http, https, or h2c for HTTP/2 without TLS",
		upstream)
	command.Var(flags, &s.Proxy.Timeout, "upstream-timeout", proxy.DefaultUpstreamTimeout.String(), "duration",
		"longest time until the application's answer begins", command.Between(minUpstreamTimeout, maxUpstreamTimeout))
	command.Var(flags, &s.Proxy.Requests, "proxy-max-requests", strconv.Itoa(proxy.DefaultMaxRequests), "count",
		"maximum of requests in progress, including WebSockets, each with a connection to the application: others get a 503", command.AtLeastOne)
	command.Var(flags, &s.Proxy.Keep, "proxy-keep-headers", "none", "headers",
		"headers that reach the application although they override the method or the path that routes match, such as "+
			"X-HTTP-Method-Override, separated by commas, or none", proxy.ParseKeepHeaders)
}

// upstream parses the URL of an application.
func upstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	wrong := err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" ||
		u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c"
	switch {
	case !wrong && u.User != nil, wrong && strings.Contains(text, "@"): // the error does not quote the text before the @
		return nil, errors.New("do not write a name and a password into the URL of the application: use one such as http://127.0.0.1:3000")
	case wrong:
		return nil, fmt.Errorf("%.64q is not the URL of an application: write it such as http://127.0.0.1:3000", text)
	}
	return u, nil
}
