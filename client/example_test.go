package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// serve answers requests in turn, as a ratelimitd does under whose policy sms-send three messages an hour may be sent.
func serve(answers ...string) (url string, stop func()) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body := answers[0]
		answers = answers[1:]
		var is struct{ Status int }
		_ = json.Unmarshal([]byte(body), &is) // no status: 200
		w.Header().Set("Content-Type", "application/json")
		if is.Status >= http.StatusBadRequest {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(is.Status)
		}
		_, _ = io.WriteString(w, body)
	}))
	return server.URL, server.Close
}

// The service's answer.
const (
	overLimit = `{"status":429,"detail":"No room.","allowed":false,"policy":"sms-send","limit":3,"used":3,"retry_after_ms":3600000}`
	noPolicy  = `{"status":404,"detail":"No policy of that name is in force; GET /v1/policies lists those that are.","field":"policy"}`
	asked     = `{"status":200,"allowed":true,"policy":"api","limit":1000000,"used":5,"remaining":999995}`
	noReceipt = `{"status":404,"detail":"There is nothing to refund.","field":"receipt"}`
)

// sent is the answer to an allowed call, after which so many messages count.
func sent(n int) string {
	const body = `{"status":200,"allowed":true,"policy":"sms-send","limit":3,"used":%d,"remaining":%d,"receipt":"Ym_Z","reservation":"Uq_3"}`
	return fmt.Sprintf(body, n, max(0, 3-n))
}

func Example() {
	url, stop := serve(sent(1), sent(2), sent(3), overLimit) // or the address of a service that runs
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
	url, stop := serve(`{"allowed":true,"demands":[` + sent(1) + "," + asked + "]}")
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
	url, stop := serve(sent(1), sent(1))
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
	// Do the limited work, and record it if it was done.
	settled, err := limits.Settle(ctx, held.Reservation) // or SettleAt, if it came to something else
	fmt.Println(settled.Used, err)
	// Output: 1 <nil>
}

func ExampleOptions_failOpen() {
	limits, err := client.New("http://127.0.0.1:1", &client.Options{ // nobody is there
		OnUnavailable: client.FailOpen,
		FailedOpen: func(call client.Call, err error) {
			fmt.Println("not limited:", call.Demands[0].Policy, errors.Is(err, client.ErrUnavailable))
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	d, err := limits.Take(context.Background(), client.Demand{Policy: "api", Identifier: "alice"})
	fmt.Println(d.Allowed, d.Degraded, err)
	fmt.Println("calls that nobody decided:", limits.FailedOpen()) // for a metric
	// Output:
	// not limited: api true
	// true true <nil>
	// calls that nobody decided: 1
}

func ExampleClient_Check() {
	url, stop := serve(sent(0), sent(0))
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	for range 2 { // a check records nothing
		d, err := limits.Check(context.Background(), client.Demand{Policy: "sms-send", Identifier: "+4915112345678"})
		fmt.Println(d.Allowed, d.Used, d.Remaining, err)
	}
	// Output:
	// true 0 3 <nil>
	// true 0 3 <nil>
}

func ExampleClient_Record() {
	url, stop := serve(sent(5))
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	// What has happened counts, past the limit too.
	d, err := limits.Record(context.Background(), client.Demand{Policy: "sms-send", Identifier: "+4915112345678", Cost: 5})
	fmt.Println(d.Used, "of", d.Limit, err)
	// Output: 5 of 3 <nil>
}

func ExampleClient_Batch() {
	url, stop := serve(`{"results":[` + sent(1) + "," + asked + "," + noPolicy + "]}")
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	results, err := limits.Batch(context.Background(), []client.Call{
		{Op: client.OpTake, Demands: []client.Demand{{Policy: "sms-send", Identifier: "+4915112345678"}}},
		{Op: client.OpCheck, Demands: []client.Demand{{Policy: "api", Identifier: "alice"}}},
		{Op: client.OpTake, Demands: []client.Demand{{Policy: "no-such", Identifier: "alice"}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range results {
		fmt.Println(r.Decision.Allowed, errors.Is(r.Err, client.ErrUnknownPolicy))
	}
	// Output:
	// true false
	// true false
	// false true
}

func ExampleClient_Refund() {
	url, stop := serve(sent(1), `{"refunded":true}`, noReceipt, sent(0))
	defer stop()
	limits, err := client.New(url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	ctx := context.Background()
	demand := client.Demand{Policy: "sms-send", Identifier: "+4915112345678"}
	d, err := limits.Take(ctx, demand)
	if err != nil || !d.Allowed {
		fmt.Println(d.RetryAfter, err)
		return
	}
	// The allowed work was not done after all.
	fmt.Println(limits.Refund(ctx, d.Receipt))
	fmt.Println(errors.Is(limits.Refund(ctx, d.Receipt), client.ErrNoReceipt)) // once only
	d, err = limits.Check(ctx, demand)
	fmt.Println(d.Used, err)
	// Output:
	// <nil>
	// true
	// 0 <nil>
}

func ExampleCallError() {
	url, stop := serve(noPolicy)
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
