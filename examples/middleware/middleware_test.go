package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/inprocess"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

// ask sends a request of a customer and returns the status and the body.
func ask(h http.Handler, method, path, key, address string) (*http.Response, string) {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address
	if key != "" {
		r.Header.Set("X-Api-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// noon is the time of all requests, so that no unit expires.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// everyRouter runs test for each router, both with a ratelimitd and with decisions in the process.
func everyRouter(t *testing.T, test func(*testing.T, http.Handler)) {
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			service := ratelimittest.New(t, policies)
			service.SetTime(noon)
			test(t, router(newLimiter(service.Client(nil))))
		})
		t.Run(name+" in process", func(t *testing.T) {
			limits, err := inprocess.Open(t.Context(), policies, &inprocess.Options{Now: func() time.Time { return noon }})
			if err != nil {
				t.Fatal(err)
			}
			defer limits.Close()
			test(t, router(newLimiter(limits)))
		})
	}
}

const me = "192.0.2.1:1234"

func TestRoutesHaveTheirLimits(t *testing.T) {
	everyRouter(t, func(t *testing.T, h http.Handler) {
		story(t, h,
			"POST /withdraw a 192.0.2.1:1 200 withdrawn", "POST /withdraw a 192.0.2.1:1 200 withdrawn",
			"POST /withdraw a 192.0.2.1:1 200 withdrawn",
			"POST /withdraw a 192.0.2.1:1 429 ", "POST /withdraw b 192.0.2.1:1 200 withdrawn", "GET /balance a 192.0.2.1:1 200 balance",
			"GET /export a 192.0.2.1:1 200 ", "GET /export a 192.0.2.1:1 200 ", "GET /export a 192.0.2.1:1 200 ", "GET /export a 192.0.2.1:1 429 ",
		)
		for i := range 5 {
			story(t, h, fmt.Sprintf("POST /login - [2001:db8::%d]:1 200 welcome", i))
		}
		story(t, h, "POST /login - [2001:db8::ffff]:1 429 ", "POST /login - [2001:db8:0:1::]:1 200 welcome")
	})
}

// story sends requests, each as method, path, key, address, status and beginning of the body.
func story(t *testing.T, h http.Handler, lines ...string) {
	t.Helper()
	for _, line := range lines {
		words := strings.SplitN(line, " ", 6)
		res, body := ask(h, words[0], words[1], strings.Trim(words[2], "-"), words[3])
		if got := fmt.Sprint(res.StatusCode); got != words[4] || !strings.HasPrefix(body, words[5]) {
			t.Errorf("%s: %s %.80s", line, got, body)
		}
	}
}

// TestOneBucket lets GETs cost 1 and POSTs 2, under three windows. Answers show the tightest.
func TestOneBucket(t *testing.T) {
	everyRouter(t, func(t *testing.T, h http.Handler) {
		left := func(method, path string) string {
			res, _ := ask(h, method, path, "a", me)
			return res.Header.Get("X-Ratelimit-Remaining") + " of " + fmt.Sprint(strings.Count(res.Header.Get("Ratelimit-Policy"), "w="))
		}
		if got := left("GET", "/balance"); got != "59 of 3" {
			t.Errorf("%s after a GET, want 59 of 3", got)
		}
		ask(h, "POST", "/withdraw", "a", me)
		if got := left("GET", "/balance"); got != "56 of 3" {
			t.Errorf("%s after another POST and GET, want 56 of 3", got)
		}
		for range 100 {
			if res, _ := ask(h, "GET", "/healthz", "a", me); res.StatusCode != http.StatusOK {
				t.Fatalf("status %d for a skipped route", res.StatusCode)
			}
		}
		for range 56 {
			left("GET", "/balance")
		}
		res, body := ask(h, "GET", "/balance", "a", me)
		if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" || !strings.Contains(body, "Quota") {
			t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
		}
	})
}

// TestWhileNobodyDecides lets requests pass while ratelimitd is gone, late or answers nonsense.
func TestWhileNobodyDecides(t *testing.T) {
	nonsense := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer nonsense.Close()
	release := make(chan struct{})
	late := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer late.Close()
	defer close(release)
	for _, url := range []string{"http://127.0.0.1:1", nonsense.URL, late.URL} {
		for name, router := range routers {
			limits, err := client.New(url, &client.Options{Timeout: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if res, body := ask(router(newLimiter(limits)), "POST", "/withdraw", "a", me); res.StatusCode != 200 || body != "withdrawn" {
				t.Errorf("%s, %s: %d %s", url, name, res.StatusCode, body)
			}
			_ = limits.Close()
		}
	}
}

func TestCommand(t *testing.T) {
	for _, args := range [][]string{{"-router", "abacus"}, {"-ratelimitd", "nowhere"}, {"-what"}, {"-listen", "256.0.0.1:1"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q runs", args)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-router", "echo", "-listen", "127.0.0.1:0"}, in) }()
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
