// Command sms-signup is an example of a service that ratelimitd protects: it
// registers phone numbers, and sends each a one-time code through a pretend SMS
// gateway. It asks ratelimitd over HTTP before every message.
//
// It knows only ratelimitd's HTTP API, checks no codes and stores nothing on
// disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "sms-signup:", err)
		os.Exit(1)
	}
}

// settings are the flags of both commands.
type settings struct {
	ratelimitd string
	listen     string
	seed       uint64
	over       time.Duration
	refuse     int
	lose       int
	patience   time.Duration // how long to wait for ratelimitd; zero: limitsTimeout
}

var errCommand = errors.New("give a command: serve, to serve POST /signup, or play, to play 2,000 sign-ups over it; each takes -h")

// run executes one command line and ends soon after ctx does.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	s := new(settings)
	flags := flag.NewFlagSet("sms-signup "+command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.ratelimitd, "ratelimitd", "http://127.0.0.1:8080", "`URL` of ratelimitd")
	switch command {
	case "serve":
		flags.StringVar(&s.listen, "listen", "127.0.0.1:8090", "HTTP `address`; port 0 takes any free one")
	case "play":
		flags.Uint64Var(&s.seed, "seed", 1, "of the visitors' random choices")
		flags.IntVar(&s.refuse, "refuse", 0, "every so many messages the gateway refuses one")
		flags.IntVar(&s.lose, "lose", 0, "every so many messages the gateway loses one, and says so in the end")
		flags.DurationVar(&s.over, "over", defaultOver, "how long the sign-ups are spread over; 0: as fast as they are answered")
	default:
		return errCommand
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if command == "play" {
		return s.play(ctx, stdout)
	}
	return s.serve(ctx, stdout, slog.New(slog.NewTextHandler(stderr, nil)))
}

func (s *settings) serve(ctx context.Context, stdout io.Writer, log *slog.Logger) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	return serveUntil(ctx, listener, NewSignup(NewLimits(s.ratelimitd), new(Gateway), log))
}

// Bounds of the server: how long clients may take, and how long requests may still
// run when it stops.
const (
	requestTimeout = 10 * time.Second
	drainTimeout   = 5 * time.Second
)

// serveUntil answers requests until ctx ends, and then finishes those in flight.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if failed := <-ended; !errors.Is(failed, http.ErrServerClosed) {
		return errors.Join(err, failed)
	}
	return err
}
