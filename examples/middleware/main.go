// Command middleware is an example of a service whose routes are limited by client/httplimit,
// with each of four routers: net/http's own, chi, gin and echo. It asks a ratelimitd, or
// decides in its own process.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/inprocess"
)

//go:embed policies.yaml
var policies string

// routers are the ways to serve the shop.
var routers = map[string]func(*httplimit.Limiter) http.Handler{"mux": newMux, "chi": newChi, "gin": newGin, "echo": newEcho}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "middleware:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("middleware", flag.ContinueOnError)
	router := flags.String("router", "mux", "mux, chi, gin or echo")
	listen := flags.String("listen", "127.0.0.1:8090", "HTTP `address`")
	server := flags.String("ratelimitd", "", "`URL` of a ratelimitd that has policies.yaml; empty: this process decides")
	if err := flags.Parse(args); err != nil {
		return err
	}
	serve, known := routers[*router]
	if !known {
		return fmt.Errorf("no router %q: use mux, chi, gin or echo", *router)
	}
	limits, err := open(ctx, *server)
	if err != nil {
		return err
	}
	defer limits.Close()
	limit := newLimiter(limits)
	shop := &http.Server{Addr: *listen, Handler: serve(limit), ReadHeaderTimeout: time.Second}
	if err := limit.Verify(ctx); errors.Is(err, client.ErrUnavailable) {
		slog.Warn("nobody knows yet whether all policies are there", "error", err)
	} else if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = shop.Close() })() // an example has nothing to drain
	fmt.Fprintf(stdout, "%s on http://%s\n", *router, *listen)
	if err := shop.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// limits is implemented by a client and by an engine in the process.
type limits interface {
	httplimit.Decider
	Close() error
}

func open(ctx context.Context, server string) (limits, error) {
	if server == "" {
		return inprocess.Open(ctx, policies, nil)
	}
	return client.New(server, &client.Options{Retries: 1})
}

// newLimiter returns the limiter of all routes. It says what identifies a customer, and which requests
// are not limited.
func newLimiter(limits httplimit.Decider) *httplimit.Limiter {
	return httplimit.New(limits, &httplimit.Options{
		Identify:       httplimit.APIKey(),
		Cost:           httplimit.CostByMethod(1, 2), // a request that changes something costs twice as much
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Skip:           httplimit.SkipPaths("/healthz"),
		Logger:         slog.Default(),
	})
}

// The rules, each declared once. Routes use them beside their handlers.
var (
	anything  = httplimit.Use("api") // a GET costs 1, a POST 2, of one bucket
	withdraws = httplimit.Use("withdraw", httplimit.Cost(2))
	logins    = httplimit.Use("login", httplimit.Cost(1), httplimit.By(httplimit.IP(netip.MustParsePrefix("127.0.0.0/8"))))
	exports   = httplimit.Use("export-bytes", httplimit.After(httplimit.ResponseBytes))
)

// exportLen is the length of the answer of GET /export, in bytes.
const exportLen = 400
