// Command envoy asks ratelimitd as an Envoy with this folder's envoy.yaml does, so that
// you can try its policies without an Envoy:
//
//	ratelimitd serve --policies policies.yaml --envoy-listen 127.0.0.1:8081
//	go run . -times 7 generic_key=login/remote_address=192.0.2.1 remote_address=192.0.2.1
//
// Each argument is a descriptor: its entries, separated by slashes. The command prints what
// Envoy would do with each request.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "envoy:", err)
		os.Exit(1)
	}
}

// filter is the configuration of Envoy's filter.
type filter struct {
	address         string
	domain          string
	timeout         time.Duration
	failureModeDeny bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var f filter
	flags := flag.NewFlagSet("envoy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&f.address, "address", "127.0.0.1:8081", "what ratelimitd listens on for Envoy")
	flags.StringVar(&f.domain, "domain", "edge", "that is asked about")
	flags.DurationVar(&f.timeout, "timeout", 600*time.Millisecond, "the longest that an answer is waited for")
	flags.BoolVar(&f.failureModeDeny, "failure-mode-deny", true, "no answer is no permission")
	times := flags.Int("times", 1, "how many requests come")
	if err := flags.Parse(args); err != nil {
		return err
	}
	request := &rls.RateLimitRequest{Domain: f.domain, Descriptors: descriptors(flags.Args())}
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all requests have answers
	client := rls.NewRateLimitServiceClient(conn)
	for range *times {
		fmt.Fprintln(stdout, f.ask(ctx, client, request))
	}
	return nil
}

// descriptors parses texts such as "generic_key=login/remote_address=::1".
func descriptors(texts []string) (list []*common.RateLimitDescriptor) {
	for _, text := range texts {
		d := new(common.RateLimitDescriptor)
		for entry := range strings.SplitSeq(text, "/") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		list = append(list, d)
	}
	return list
}

// ask asks about one request, and returns what Envoy does with it.
func (f *filter) ask(ctx context.Context, client rls.RateLimitServiceClient, r *rls.RateLimitRequest) string {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	response, err := client.ShouldRateLimit(ctx, r)
	switch {
	case err != nil && f.failureModeDeny:
		return fmt.Sprintf("503 (failure_mode_deny): %v", err)
	case err != nil:
		return fmt.Sprintf("passes, uncounted: %v", err)
	case response.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT:
		return "429" + headers(response)
	}
	return "passes" + headers(response)
}

// headers returns the headers that Envoy adds to the response.
func headers(r *rls.RateLimitResponse) string {
	var b strings.Builder
	for _, h := range r.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, "  %s: %s", h.GetKey(), h.GetValue())
	}
	return b.String()
}
