package proxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

const (
	here     = "127.0.0.1" // who the tests' requests come from
	byTenant = "- {path: /, limits: [{policy: two, identify: 'header:X-Tenant'}]}"
)

// TestRequestsAreLimited holds that requests are limited, with the same answers as ratelimitd's.
func TestRequestsAreLimited(t *testing.T) {
	f := newFront(t, byTenant, hello)
	for remaining := range 2 {
		res, body := f.send(f.request("POST", "/a?b=c", "body", "X-Tenant", "acme"))
		if body != "hello POST /a?b=c body" || res.Header.Get("X-Ratelimit-Remaining") != fmt.Sprint(1-remaining) {
			t.Errorf("%q, %v", body, res.Header)
		}
	}
	res, body := f.send(f.request("POST", "/a", "body", "X-Tenant", "acme"))
	if res.StatusCode != 429 || !strings.Contains(body, "quota-exceeded") || !strings.Contains(body, `"policy":"two"`) ||
		res.Header.Get("Retry-After") == "" || !strings.Contains(res.Header.Get("Ratelimit"), "r=0") || strings.Contains(body, "receipt") {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
	f.mustBe(200, "GET", "/a", "", "X-Tenant", "other")
	f.mustBe(200, "GET", "/a", "") // by the address
	f.mustHaveUsed(1, "two", "ip\n"+here)
}

// TestTheFirstRouteThatMatches holds that only the first route that matches counts a request.
func TestTheFirstRouteThatMatches(t *testing.T) {
	const routes = `
- {name: health, path: /healthz, limits: []}
- {name: host, host: api.example.com, path: /v1/, limits: []}
- {name: wild, host: "*.example.com", limits: []}
- {name: items, path: "/items/{id}", methods: [POST, PUT], limits: []}
- {name: files, path: "/files/{rest...}", methods: [GET], limits: []}
- {name: free, path: /plans, headers: {x-plan: free}, limits: []}
- {name: plans, path: /plans, headers: {X-Plan: "*"}, limits: []}
- {name: dir, path: /dir/, limits: []}
`
	f := newFront(t, routes, hello)
	for _, c := range []struct {
		method, path string
		headers      []string
		want         string
	}{
		{"GET", "/healthz", nil, "health"},
		{"GET", "/healthz/", nil, "health"},
		{"GET", "//HEALTHZ", nil, "health"},
		{"GET", "/%68ealthz", nil, "health"},
		{"GET", "/healthz/x", nil, "none"},
		{"GET", "/v1/a", []string{"Host", "API.example.com:80"}, "host"},
		{"GET", "/v1", []string{"Host", "api.example.com."}, "host"},
		{"GET", "/v2", []string{"Host", "api.example.com"}, "wild"},
		{"GET", "/v2", []string{"Host", "example.com"}, "none"},
		{"POST", "/items/5", nil, "items"},
		{"GET", "/items/5", nil, "none"},
		{"PUT", "/items", nil, "none"},
		{"PUT", "/items/5/6", nil, "none"},
		{"GET", "/files/a/b", nil, "files"},
		{"GET", "/plans", []string{"X-Plan", "free"}, "free"},
		{"GET", "/plans", []string{"X-Plan", "pro"}, "plans"},
		{"GET", "/plans", nil, "none"},
		{"GET", "/dir/a/b", nil, "dir"},
		{"GET", "/dir", nil, "dir"},
		{"GET", "/", nil, "none"},
	} {
		res, err := http.DefaultClient.Do(f.request(c.method, c.path, "", c.headers...))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := f.wait(); got != c.want+" OK" {
			t.Errorf("%s %s %v: %s, want %s", c.method, c.path, c.headers, got, c.want)
		}
	}
}

// TestPathsThatLeadAway holds that paths with dots as segments are refused.
func TestPathsThatLeadAway(t *testing.T) {
	f := newFront(t, byTenant, hello)
	for _, target := range []string{"/a/../b", "/./a", "/a/%2e%2e/b", "/a/..%2fb"} {
		_, answers := f.dial("GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if line, err := answers.ReadString('\n'); !strings.Contains(line, " 400 ") || err != nil {
			t.Errorf("%s: %s, %v", target, line, err)
		}
	}
	f.mustHaveUsed(0, "two", "ip\n"+here)
}

// TestOnlyWhatWasServedCounts holds that only served requests count if the route says so.
func TestOnlyWhatWasServedCounts(t *testing.T) {
	const routes = `
- {path: /login/, limits: [{policy: two, count: served, statuses: [401]}]}
- {path: /both/, limits: [{policy: other}, {policy: two, count: served}]}
- {path: /, limits: [{policy: two, count: served}]}
`
	f := newFront(t, routes, hello)
	f.mustBe(404, "GET", "/404", "")
	res := f.mustBe(500, "GET", "/500", "")
	if res.Header.Get("Ratelimit") != "" {
		t.Errorf("what is given back was told of: %v", res.Header)
	}
	f.mustHaveUsed(0, "two", here)
	f.mustBe(200, "GET", "/", "")
	f.mustHaveUsed(1, "two", here)
	f.mustBe(200, "GET", "/login/", "")
	f.mustHaveUsed(1, "two", here)
	f.mustBe(401, "GET", "/login/401", "")
	f.mustHaveUsed(2, "two", here)
	f.mustBe(429, "GET", "/login/401", "")
	f.mustBe(429, "GET", "/both/", "") // two is spent: other is given back
	f.mustHaveUsed(0, "other", here)
}

// TestEachLimitGoesByItsOwnStatuses holds that each limit keeps or refunds units by its own statuses.
func TestEachLimitGoesByItsOwnStatuses(t *testing.T) {
	const routes = `
- path: /
  limits:
  - {policy: other, count: served}
  - {policy: two, count: served, statuses: [401]}
  - {policy: objects, count: served, statuses: [401]}
`
	f := newFront(t, routes, hello)
	f.mustBe(200, "GET", "/", "")
	f.mustHaveUsed(1, "other", here)
	f.mustHaveUsed(0, "two", here)
	for range 2 {
		f.mustBe(401, "GET", "/401", "")
	}
	f.mustHaveUsed(1, "other", here)
	f.mustHaveUsed(2, "two", here)
	f.mustHaveUsed(2, "objects", here)
	f.mustBe(429, "GET", "/", "") // two is spent: the others are given back
	f.mustHaveUsed(1, "other", here)
	f.mustHaveUsed(2, "objects", here)
}

// TestNoMoreAtOnceThanTheLimit holds that requests in progress count until they are refunded.
func TestNoMoreAtOnceThanTheLimit(t *testing.T) {
	arrived, leave := make(chan struct{}, 2), make(chan struct{})
	f := newFront(t, "- {path: /, limits: [{policy: two, count: served, statuses: [401]}]}", func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusUnauthorized)
	})
	statuses := make(chan int, 2)
	for range 2 {
		go func() {
			res, err := http.Get(f.url)
			if err != nil {
				statuses <- 0
				return
			}
			_ = res.Body.Close()
			statuses <- res.StatusCode
		}()
	}
	<-arrived
	<-arrived
	f.mustBe(429, "GET", "/", "")
	close(leave)
	if a, b := <-statuses, <-statuses; a != 401 || b != 401 {
		t.Errorf("%d, %d", a, b)
	}
	f.mustBe(429, "GET", "/", "")
}

// TestAddressesOfUntrustedClients holds that the address of a client that is not trusted is that of its connection,
// also for the application.
func TestAddressesOfUntrustedClients(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Proto"], r.Header["X-Forwarded-Host"], r.Header["X-Real-Ip"])
	}
	lies := []string{"Host", "a.example", "X-Forwarded-For", "198.51.100.1", "X-Forwarded-Proto", "https", "X-Real-IP", "198.51.100.1"}
	const routes = "- {path: /, limits: [{policy: two}]}"
	f := newFront(t, routes, echo)
	if _, body := f.send(f.request("GET", "/", "", lies...)); body != "a.example[127.0.0.1] [http] [a.example] []" {
		t.Errorf("not trusted: %s", body)
	}
	f.mustHaveUsed(1, "two", here)
	f = newFront(t, routes, echo, trust("127.0.0.1"))
	if _, body := f.send(f.request("GET", "/", "", lies...)); body != "a.example[198.51.100.1, 127.0.0.1] [https] [a.example] [198.51.100.1]" {
		t.Errorf("trusted: %s", body)
	}
	f.mustHaveUsed(1, "two", "198.51.100.1")
}

// TestAnApplicationThatDoesNotAnswer holds that clients get a 502 or a 504 if the application does not answer, and that
// units of requests that were not served are refunded.
func TestAnApplicationThatDoesNotAnswer(t *testing.T) {
	const routes = `
- {path: /first, limits: [{policy: other}]}
- {path: /, limits: [{policy: two, count: served}]}
`
	leave := make(chan struct{})
	f := newFront(t, routes, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/slow"):
			select {
			case <-leave:
			case <-r.Context().Done():
			}
		default:
			conn, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(conn, "220 mail.example.com ESMTP\r\n\r\n")
			_ = conn.Close()
		}
	}, func(o *proxy.Options) { o.UpstreamTimeout = 100 * time.Millisecond })
	defer close(leave)
	f.mustBe(504, "GET", "/slow", "")
	res := f.mustBe(502, "POST", "/nonsense", "")
	if res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v", res.Header)
	}
	f.app.CloseClientConnections()
	_ = f.app.Listener.Close()
	f.mustBe(502, "GET", "/gone", "")
	f.mustHaveUsed(0, "two", here)
	f.mustBe(502, "GET", "/first", "")
	f.mustHaveUsed(1, "other", here)
}

// TestAClientThatHangsUp holds that the units of a client that hangs up stay counted: the application has worked.
func TestAClientThatHangsUp(t *testing.T) {
	arrived := make(chan struct{})
	f := newFront(t, "- {path: /, limits: [{policy: two, count: served}]}", func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	conn, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(answers); len(answer) > 0 || err != nil { // an empty 200 would be a lie
		t.Errorf("%q, %v", answer, err)
	}
	if got := f.wait(); got != "/ " { // 499 has no text
		t.Errorf("%q", got)
	}
	f.mustHaveUsed(1, "two", here)
}

// TestAStoreThatDoesNotAnswer holds that requests are denied or pass by on_store_error.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	const routes = "- {path: /open, limits: [{policy: open}]}\n- {path: /bytes, limits: [{policy: bytes, charge: response-bytes}]}\n"
	f := newFront(t, routes+byTenant, hello)
	f.store.fail(fmt.Errorf("no host answers: %w", store.ErrUnavailable))
	for _, path := range []string{"/", "/bytes"} {
		res, body := f.send(f.request("GET", path, ""))
		if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(body, "temporary-reduced-capacity") {
			t.Errorf("%s: %d %v %s", path, res.StatusCode, res.Header, body)
		}
	}
	f.mustBe(200, "GET", "/open", "")
	f.store.fail(errors.New("what nobody has thought of"))
	f.mustBe(500, "GET", "/", "")
	f.store.fail(nil)
	f.mustBe(200, "GET", "/", "")
}

// TestAPolicyThatIsGone holds that requests are refused if a reload has removed their policy.
func TestAPolicyThatIsGone(t *testing.T) {
	f := newFront(t, byTenant, hello)
	if err := f.engine.SetPolicies(policies[1:]); err != nil {
		t.Fatal(err)
	}
	f.mustBe(500, "GET", "/", "")
}

// http2Transport speaks HTTP/2 without TLS.
func http2Transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

// TestHTTP2 holds that the proxy speaks HTTP/2, also without TLS.
func TestHTTP2(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	transport := http2Transport()
	defer transport.CloseIdleConnections()
	for _, want := range []int{200, 200, 429} {
		res, err := transport.RoundTrip(f.request("GET", "/", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.ProtoMajor != 2 || res.StatusCode != want {
			t.Errorf("%s, %d, want %d", res.Proto, res.StatusCode, want)
		}
	}
}

// TestStreams holds that streams are passed on as they come, in both directions.
func TestStreams(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		buffer := make([]byte, 10)
		for {
			n, err := r.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	})
	body, in := io.Pipe()
	r := f.request("POST", "/", "")
	r.Body, r.ContentLength = body, -1
	go func() { _, _ = io.WriteString(in, "first") }()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buffer := make([]byte, 10)
	for _, word := range []string{"first", "second"} {
		n, err := io.ReadFull(res.Body, buffer[:len(word)])
		if string(buffer[:n]) != word || err != nil {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
		if word == "first" {
			go func() { _, _ = io.WriteString(in, "second") }()
		}
	}
	_ = in.Close()
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// echoUpgrade is an application that, after an upgrade, echoes bytes.
func echoUpgrade(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.WriteHeader(http.StatusUpgradeRequired)
		return
	}
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	_, _ = io.Copy(conn, both)
}

const upgrade = "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// mustEcho upgrades a connection, and exchanges some bytes.
func (f *front) mustEcho() net.Conn {
	f.t.Helper()
	conn, answers := f.dial(upgrade)
	res, err := http.ReadResponse(answers, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		f.t.Fatalf("%v, %v", res, err)
	}
	if _, err := io.WriteString(conn, "some bytes"); err != nil {
		f.t.Fatal(err)
	}
	got := make([]byte, 10)
	if _, err := io.ReadFull(answers, got); string(got) != "some bytes" || err != nil {
		f.t.Fatalf("%q, %v", got, err)
	}
	return conn
}

// TestUpgrades holds that upgrades pass, and count: the request at once, the bytes at their end.
func TestUpgrades(t *testing.T) {
	f := newFront(t, "- {path: /chat, limits: [{policy: two, count: served}, {policy: bytes, charge: response-bytes}, "+
		"{policy: sent, charge: request-bytes}]}", echoUpgrade)
	for i := range int64(2) {
		conn := f.mustEcho()
		f.mustHaveUsed(i+1, "two", here)
		_ = conn.Close()
		f.wait()
	}
	f.mustHaveUsed(20, "bytes", here)
	f.mustHaveUsed(20, "sent", here)
	_, answers := f.dial(upgrade)
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 429 ") || err != nil {
		t.Errorf("%s, %v", line, err)
	}
}

// TestUpgradesOfWhoHasSentTooMuch holds that upgrades are denied to a caller whose bytes are used up.
func TestUpgradesOfWhoHasSentTooMuch(t *testing.T) {
	f := newFront(t, "- {path: /chat, limits: [{policy: sent, charge: request-bytes}]}", echoUpgrade)
	for range 2 {
		conn := f.mustEcho()
		_ = conn.Close()
		f.wait()
	}
	f.mustHaveUsed(20, "sent", here)
	_, answers := f.dial(upgrade)
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 429 ") || err != nil {
		t.Errorf("%s, %v", line, err)
	}
}

// TestHeadersThatTheApplicationDoesNotSee holds that a client is identified without the headers that it names in
// Connection.
func TestHeadersThatTheApplicationDoesNotSee(t *testing.T) {
	f := newFront(t, byTenant, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "seen: "+r.Header.Get("X-Tenant")+".")
	})
	for i, want := range []string{"200 OK", "200 OK", "429 "} {
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: made up %d\r\nConnection: close, x-tenant\r\n\r\n", i)
		_, answers := f.dial(request)
		answer, _ := io.ReadAll(answers)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) || strings.Contains(string(answer), "made up") {
			t.Errorf("%d: %s", i, answer)
		}
	}
}

// TestCloseWaitsForWhatIsServed holds that Close waits until requests in progress are counted.
func TestCloseWaitsForWhatIsServed(t *testing.T) {
	came, goOn := make(chan struct{}), make(chan struct{})
	f := newFront(t, byTenant, func(http.ResponseWriter, *http.Request) { close(came); <-goOn })
	go func() {
		if res, err := http.Get(f.url + "/"); err == nil {
			_ = res.Body.Close()
		}
	}()
	<-came
	f.proxy.Close()
	f.wait() // it is counted by then, and told of
	close(goOn)
}

// TestUpgradesEndWithTheProxy holds that Close ends upgraded connections, and their bytes are counted.
func TestUpgradesEndWithTheProxy(t *testing.T) {
	f := newFront(t, "- {path: /chat, limits: [{policy: bytes, charge: response-bytes}]}", echoUpgrade)
	conn := f.mustEcho()
	f.proxy.Close()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is open: %v", err)
	}
	f.mustHaveUsed(10, "bytes", here)
}

// TestCloseEndsWhatAnApplicationDoesNotRead holds that Close ends a request whose body the application does not read.
func TestCloseEndsWhatAnApplicationDoesNotRead(t *testing.T) {
	came, goOn := make(chan struct{}), make(chan struct{})
	f := newFront(t, byTenant, func(http.ResponseWriter, *http.Request) { close(came); <-goOn })
	defer close(goOn)
	conn, _ := f.dial("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n")
	go func() { // until nobody takes any more
		for part := make([]byte, 1<<16); ; {
			if _, err := conn.Write(part); err != nil {
				return
			}
		}
	}()
	<-came
	time.Sleep(100 * time.Millisecond) // all buffers are full
	closed := make(chan struct{})
	go func() { f.proxy.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("it waits for ever")
	}
	_ = conn.Close()
}

// TestWhatATrustedProxySaysStays holds that a client's Connection header can not remove the headers of a trusted proxy.
func TestWhatATrustedProxySaysStays(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: two}]}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-For"))
	}, trust("127.0.0.0/8"))
	_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close, X-Forwarded-For\r\n\r\n")
	if answer, _ := io.ReadAll(answers); !strings.Contains(string(answer), "203.0.113.9") {
		t.Errorf("the application is told %s", answer)
	}
	f.mustHaveUsed(1, "two", "203.0.113.9")
}
