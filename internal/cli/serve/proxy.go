package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newProxy(p *command.Process) *cobra.Command {
	s := new(settings.Settings)
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Pass requests on to an application, within their limits",
		Long: "Pass requests on to an application, within their limits, until SIGTERM or SIGINT.\n\n" +
			"--proxy-listen is the address for clients, --upstream the application. The key routes: in the --config\n" +
			"file has the requests that are limited, and their limits. Besides, proxy does all that serve does, on\n" +
			"--listen: health, metrics, the application's own calls. Several proxies share counts by --store cassandra.\n\n" +
			"Every flag has an environment variable (--upstream: RATELIMITD_UPSTREAM) and a key in the\n" +
			"--config file (upstream:). A flag beats the environment, which beats the file.",
		Example: `  ratelimitd proxy --upstream http://127.0.0.1:3000 --config proxy.yaml`,
		Args:    command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.Load(cmd, p)
			if err != nil {
				return err
			}
			if !s.Proxies() {
				return errors.New("--upstream is missing: give the application's address, such as http://127.0.0.1:3000")
			}
			return serve(cmd, p, s, log)
		},
	}
	s.AddCommonFlags(cmd.Flags())
	s.AddServeFlags(cmd.Flags())
	s.AddCassandraFlags(cmd.Flags())
	s.AddProxyFlags(cmd.Flags())
	return cmd
}

// listenProxy opens the proxy's address for clients, and prints it to stdout. The stage that it returns serves them, or
// does nothing if there is no proxy.
func (s *service) listenProxy(ctx context.Context) (stage, error) {
	given := &s.settings.Proxy
	if !s.settings.Proxies() {
		return untilDone, nil
	}
	handler, err := s.newProxy()
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", given.Listen)
	if err != nil {
		return nil, command.Fail(err)
	}
	if _, err := fmt.Fprintf(s.stdout, "proxying on %s://%s\n", s.guard.scheme(), listener.Addr()); err != nil {
		return nil, command.Fail(errors.Join(err, listener.Close()))
	}
	server := proxy.NewHTTPServer(handler)
	server.ErrorLog = s.serverLog(slog.LevelInfo)
	limited := s.limit(server, listener)
	serving := &httpServer{server, limited, secured(limited, s.guard.publicTLS()), drainTimeoutOfProxy, s.log}
	return func(ctx context.Context) error {
		defer handler.Close()
		defer s.takeStandardLog()()
		return serving.run(ctx)
	}, nil
}

// newProxy returns a proxy with the routes of the configuration file.
func (s *service) newProxy() (*proxy.Proxy, error) {
	given := s.settings
	routes, err := readRoutes(given.Config, s.engine)
	if err != nil {
		return nil, err
	}
	return proxy.New(s.engine, &proxy.Options{
		Upstream: given.Proxy.Upstream, UpstreamTimeout: given.Proxy.Timeout, Routes: routes, TrustedProxies: given.Trusted,
		KeepHeaders: given.Proxy.Keep, MaxRequests: s.room.requests, Reached: s.reached,
		Headers: given.Headers, Logger: s.log, Tracer: s.telemetry.Tracer(),
		Observe: func(route string, status int, d time.Duration, trace string) {
			s.measured.ObserveHTTP("proxy "+route, status, d, trace)
		},
	})
}

// readRoutes reads the routes in the configuration file.
func readRoutes(file string, engine *limiter.Engine) ([]proxy.Route, error) {
	if file == "" {
		return nil, errors.New("--config is missing: routes of the proxy are in that file, under the key " + proxy.Key)
	}
	data, err := yamlfile.Read(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	policies := engine.Policies()
	if len(policies) == 0 {
		policies = nil // the policies in the store are not known yet
	}
	return proxy.Parse(file, data, policies)
}
