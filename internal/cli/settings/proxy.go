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

// Proxy says what the command proxy passes on, which has all settings of serve, too.
type Proxy struct {
	Listen   string        // where clients come to
	Upstream *url.URL      // nil: there is no proxy
	Timeout  time.Duration // until the answer of the application begins
	Requests int           // under way at the same time
	Keep     []string      // headers that are passed on though they override the method or the path
}

// Proxies reports whether there is an application to pass requests on to.
func (s *Settings) Proxies() bool { return s.Proxy.Upstream != nil }

// Bounds of --upstream-timeout: an application that thinks for longer than an hour works off
// the request's way.
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
		"requests in progress at most, WebSockets included, each with a connection to the application: others get a 503", command.AtLeastOne)
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
	case !wrong && u.User != nil, wrong && strings.Contains(text, "@"): // what stands before it is not repeated
		return nil, errors.New("the URL of an application is no place for a name and a password: write it such as http://127.0.0.1:3000")
	case wrong:
		return nil, fmt.Errorf("%.64q is no URL of an application: write it such as http://127.0.0.1:3000", text)
	}
	return u, nil
}
