package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// proxySettings are those of the command proxy, which has all of serve, too.
type proxySettings struct {
	listen   string
	upstream *url.URL // nil: there is no proxy
	timeout  time.Duration
}

func newProxy(environ []string) *cobra.Command {
	s := new(settings)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Pass requests on to an application, within their limits",
		Long: "Pass requests on to an application, within their limits, until SIGTERM or SIGINT.\n\n" +
			"--proxy-listen is where clients come to, and --upstream the application. Which requests are limited\n" +
			"by what is under the key routes: of the --config file. All that serve does is done beside it, on\n" +
			"--listen: health, metrics, the application's own calls. Several proxies share counts by --store cassandra.\n\n" +
			"Every flag has an environment variable (--upstream: RATELIMITD_UPSTREAM) and a key in the\n" +
			"--config file (upstream:). A flag beats the environment, which beats the file.",
		Example: `  ratelimitd proxy --upstream http://127.0.0.1:3000 --config proxy.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.load(cmd, environ)
			if err != nil {
				return err
			}
			if s.proxy.upstream == nil {
				return errors.New("--upstream is missing: give the application's address, such as http://127.0.0.1:3000")
			}
			return serve(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr(), log)
		},
	}
	s.addCommonFlags(cmd.Flags())
	s.addServeFlags(cmd.Flags())
	s.addCassandraFlags(cmd.Flags())
	s.addProxyFlags(cmd.Flags())
	return cmd
}

// Bounds of --upstream-timeout: an application that thinks for longer than an hour works off
// the request's way.
const (
	minUpstreamTimeout = 10 * time.Millisecond
	maxUpstreamTimeout = time.Hour
)

func (s *settings) addProxyFlags(flags *pflag.FlagSet) {
	parsed(flags, &s.proxy.listen, "proxy-listen", "127.0.0.1:8000", "address", "where clients come to; port 0 takes any free one", address)
	parsed(flags, &s.proxy.upstream, "upstream", "", "URL", "of the application: http, https, or h2c for HTTP/2 without TLS", upstream)
	parsed(flags, &s.proxy.timeout, "upstream-timeout", proxy.DefaultUpstreamTimeout.String(), "duration",
		"the longest that the application may take until its answer begins", between(minUpstreamTimeout, maxUpstreamTimeout))
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

// listenProxy opens the address that clients come to, and says so on stdout. It returns what
// serves there: nothing, if there is no proxy.
func (p *parts) listenProxy(ctx context.Context, stdout io.Writer) (stage, error) {
	s, engine, log := p.settings, p.source.engine, p.log
	if s.proxy.upstream == nil {
		return untilDone, nil
	}
	routes, err := s.routes(engine)
	if err != nil {
		return nil, err
	}
	standardLog(log)
	handler, err := proxy.New(engine, &proxy.Options{
		Upstream: s.proxy.upstream, UpstreamTimeout: s.proxy.timeout, Routes: routes, TrustedProxies: s.trusted,
		Headers: s.headers, Logger: log, Observe: func(route string, status int, d time.Duration) {
			p.measured.ObserveHTTP("proxy "+route, status, d)
		},
	})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.proxy.listen)
	if err != nil {
		return nil, failure{err}
	}
	if _, err := fmt.Fprintf(stdout, "proxying on %s://%s\n", p.guard.scheme(), listener.Addr()); err != nil {
		return nil, failure{errors.Join(err, listener.Close())}
	}
	server := proxy.NewHTTPServer(handler)
	server.ErrorLog = serverLog(log, slog.LevelInfo)
	connections := api.LimitConnections(server, listener, s.connections, p.bounds.reached)
	p.bounds.open(connections.Len)
	serving := &httpServer{server, connections, p.guard.secureForAll(connections, "h2", "http/1.1"), drainTimeoutOfProxy, log}
	return func(ctx context.Context) error {
		defer handler.Close()
		return serving.run(ctx)
	}, nil
}

// routes reads those of the configuration file.
func (s *settings) routes(engine *limiter.Engine) ([]proxy.Route, error) {
	if s.config == "" {
		return nil, errors.New("--config is missing: routes of the proxy are in that file, under the key " + proxy.Key)
	}
	data, err := yamlfile.Read(s.config)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	var names []string
	for _, p := range engine.Policies() {
		names = append(names, p.Name)
	}
	return proxy.Parse(s.config, data, names)
}
