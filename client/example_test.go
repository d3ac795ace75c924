package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// serve runs a ratelimitd with the tests' policies; sms-send allows 3 an hour.
func serve() (url string, stop func()) {
	engine := limiter.New(embedded.New(nil), &limiter.Options{StoreTimeout: patience})
	if err := engine.SetPolicies(policies); err != nil {
		panic(err)
	}
	server := httptest.NewServer(api.New(engine, nil))
	return server.URL, server.Close
}

func Example() {
	url, stop := serve() // or the address of a service that runs
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	for range 4 {
		d, err := limits.Take(context.Background(), client.Demand{Policy: "sms-send", Identifier: "+4915112345678"})
		switch {
		case err != nil:
			fmt.Println("nobody decided:", err)
		case d.Allowed:
			fmt.Println("sent,", d.Remaining, "remain")
		case d.RetryAfter == client.Never:
			fmt.Println("not allowed")
		default:
			fmt.Println("try again in", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// sent, 2 remain
	// sent, 1 remain
	// sent, 0 remain
	// try again in 1h0m0s
}

func ExampleClient_Take_several() {
	url, stop := serve()
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	d, err := limits.Take(context.Background(), // both are recorded, or none is
		client.Demand{Policy: "sms-send", Identifier: "+4915112345678"},
		client.Demand{Policy: "api", Identifier: "203.0.113.7", Cost: 5})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, one := range d.Demands {
		fmt.Println(one.Policy, one.Allowed, one.Used)
	}
	// Output:
	// sms-send true 1
	// api true 5
}

func ExampleClient_Reserve() {
	url, stop := serve()
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	ctx := context.Background()
	held, err := limits.Reserve(ctx, 30*time.Second, client.Demand{Policy: "sms-send", Identifier: "+4915112345678"})
	if err != nil || !held.Allowed {
		fmt.Println(held.RetryAfter, err)
		return
	}
	// Do what is limited, and record it if it was done.
	settled, err := limits.Settle(ctx, held.Reservation)
	fmt.Println(settled.Used, err)
	// Output: 1 <nil>
}

func ExampleOptions_onUnavailable() {
	limits, err := client.New("http://127.0.0.1:1", &client.Options{OnUnavailable: client.FailOpen}) // nobody is there
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	d, err := limits.Take(context.Background(), client.Demand{Policy: "api", Identifier: "alice"})
	fmt.Println(d.Allowed, d.Degraded, err)
	// Output: true true <nil>
}

func ExampleCallError() {
	url, stop := serve()
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	_, err = limits.Take(context.Background(), client.Demand{Policy: "no-such", Identifier: "alice"})
	fmt.Println(errors.Is(err, client.ErrUnknownPolicy), client.RecordedOf(err))
	fmt.Println(err)
	// Output:
	// true no
	// ratelimitd: take: status 404: policy: No policy of that name is in force; GET /v1/policies lists those that are.
}
