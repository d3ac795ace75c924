package ask_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// serverNamedBy ends errors of a server that is not the one that was meant.
const serverNamedBy = "The server to ask is named by --server or RATELIMITD_SERVER."

// reply is the answer of a foreign server to every request.
type reply struct {
	status   int
	kind     string // content type; empty: what goes with the status
	location string
	body     string
}

// pretend serves one reply.
func pretend(t *testing.T, r reply) *httptest.Server {
	t.Helper()
	if r.kind == "" {
		r.kind = "application/problem+json"
		if r.status == http.StatusOK {
			r.kind = "application/json"
		}
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", r.kind)
		w.Header().Set("X-Request-ID", "R1")
		if r.location != "" {
			w.Header().Set("Location", r.location)
		}
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.body)
	}))
	t.Cleanup(s.Close)
	return s
}

// silent serves nothing, for as long as a client waits.
func silent(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices the client's end
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s
}

const (
	unavailable = `{"type":"x","title":"Temporary Reduced Capacity","status":503,"detail":"The store does not answer.","recorded":%q}`
	lostEvent   = "Whether the event was recorded is unknown: another try may count it twice."
)

// argsOf returns a command line about somebody; verb may have flags.
func argsOf(verb string) []string {
	verb, flags, _ := strings.Cut(verb, " ")
	args := []string{verb, "p", somebody}
	if verb == "refund" {
		args = []string{verb, somebody}
	}
	return append(args, strings.Fields(flags)...)
}

// An answer that cannot be read is an error, which says whether the event may be recorded.
func TestAskErrors(t *testing.T) {
	const allowed = `{"allowed":true,"policy":"p","limits":[{"name":"l"}]}`
	const denied = `{"detail":"Wait.","allowed":false,"policy":"p","limits":[{"name":"l"}]}`
	for _, test := range []struct {
		name  string
		verb  string
		reply reply
		want  string // URL stands for the server's
	}{
		{"unavailable, unknown", "take", reply{status: 503, body: fmt.Sprintf(unavailable, "unknown")},
			"the server answers 503: The store does not answer.\n  " + lostEvent + " The server's log has it as request R1.\n"},
		{"unavailable, no", "record", reply{status: 503, body: fmt.Sprintf(unavailable, "no")},
			"the server answers 503: The store does not answer.\n  Nothing was recorded. The server's log has it as request R1.\n"},
		{"unavailable, yes", "take", reply{status: 503, body: fmt.Sprintf(unavailable, "yes")},
			"the server answers 503: The store does not answer.\n  The event was recorded all the same. The server's log has it as request R1.\n"},
		{"unavailable, without a word", "take", reply{status: 503, body: `{"detail":"Full."}`},
			"the server answers 503: Full.\n  The server's log has it as request R1.\n"},
		{"unavailable, check", "check", reply{status: 503, body: fmt.Sprintf(unavailable, "no")},
			"the server answers 503: The store does not answer.\n  The server's log has it as request R1.\n"},
		{"unavailable, reset", "reset", reply{status: 503, body: fmt.Sprintf(unavailable, "unknown")},
			"the server answers 503: The store does not answer.\n  Whether the counts were forgotten is unknown: reset again." +
				" The server's log has it as request R1.\n"},
		{"unavailable, reset, no", "reset", reply{status: 503, body: fmt.Sprintf(unavailable, "no")},
			"the server answers 503: The store does not answer.\n  Nothing was forgotten. The server's log has it as request R1.\n"},
		{"unavailable, refund", "refund", reply{status: 503, body: fmt.Sprintf(unavailable, "yes")},
			"the server answers 503: The store does not answer.\n  Nothing was refunded. The server's log has it as request R1.\n"},
		{"unavailable, refund, unknown", "refund", reply{status: 503, body: fmt.Sprintf(unavailable, "unknown")},
			"the server answers 503: The store does not answer.\n" +
				"  Whether it was refunded is unknown: refund again, which has an effect only once." +
				" The server's log has it as request R1.\n"},
		{"unavailable, with a key", "take --idempotency-key=k", reply{status: 503, body: fmt.Sprintf(unavailable, "unknown")},
			"the server answers 503: The store does not answer.\n  Whether the event was recorded is unknown:" +
				" try again with the same --idempotency-key. The server's log has it as request R1.\n"},
		{"unavailable, with a hold", "check --reserve=1m", reply{status: 503, body: fmt.Sprintf(unavailable, "unknown")},
			"the server answers 503: The store does not answer.\n  Units may be held until the time of --reserve is over." +
				" The server's log has it as request R1.\n"},
		{"a key that was used", "take --idempotency-key=k", reply{status: 422, body: `{"detail":"Used.","field":"Idempotency-Key"}`},
			"the server answers 422: Idempotency-Key: Used.\n  Give another --idempotency-key.\n"},
		{"a refund of a server without refunds", "refund", reply{status: 404, body: `{"detail":"No route."}`},
			"the server answers 404: No route.\n  " + serverNamedBy + "\n"},
		{"a refund that is none", "refund", reply{status: 200, body: `{"refunded":false}`},
			"URL does not answer as ratelimitd does: status 200, content type \"application/json\"\n" +
				"  Whether it was refunded is unknown: refund again, which has an effect only once. " + serverNamedBy + "\n"},
		{"a field", "take", reply{status: 400, body: `{"detail":"Too long.","field":"identifier"}`},
			"the server answers 400: identifier: Too long.\n"},
		{"what would steer a terminal", "take", reply{status: 400, body: `{"detail":"\u001b[2J","field":"a\nb"}`},
			"the server answers 400: a\ufffdb: \ufffd[2J\n"},
		{"a problem without a word", "take", reply{status: 400, body: `{"status":400}`},
			"URL does not answer as ratelimitd does: status 400, content type \"application/problem+json\"\n  " + serverNamedBy + "\n"},
		{"no such route", "take", reply{status: 404, body: `{"detail":"No route."}`},
			"the server answers 404: No route.\n  " + serverNamedBy + "\n"},
		{"a policy that is not there, on a server without a list", "take", reply{status: 404, body: `{"detail":"None.","field":"policy"}`},
			"the server answers 404: policy: None.\n"},
		{"a denial by something else", "take", reply{status: 429, body: `{"detail":"Slow down."}`},
			"the server answers 429: Slow down.\n"},
		{"a denial that is no problem", "take", reply{status: 429, kind: "application/json", body: denied},
			"URL does not answer as ratelimitd does: status 429, content type \"application/json\"\n  " + serverNamedBy + "\n"},
		{"a denial that allows", "take", reply{status: 429, body: strings.Replace(denied, "false", "true", 1)},
			"the server answers 429: Wait.\n"},
		{"an allowance that denies", "take", reply{status: 200, body: strings.Replace(allowed, "true", "false", 1)},
			"URL does not answer as ratelimitd does: status 200, content type \"application/json\"\n  " + lostEvent + " " + serverNamedBy + "\n"},
		{"no word on allowed", "check", reply{status: 200, body: `{"limits":[{"name":"l"}]}`}, "URL does not answer as ratelimitd does"},
		{"no limits", "check", reply{status: 200, body: `{"allowed":true}`}, "URL does not answer as ratelimitd does"},
		{"JSON that is cut off", "check", reply{status: 200, body: allowed[:20]}, "URL does not answer as ratelimitd does"},
		{"a web page", "check", reply{status: 200, kind: "text/html; charset=utf-8", body: allowed},
			"URL does not answer as ratelimitd does: status 200, content type \"text/html\"\n  " + serverNamedBy + "\n"},
		{"a web page after a reset", "reset", reply{status: 200, kind: "text/html", body: "done"},
			"content type \"text/html\"\n  Whether the counts were forgotten is unknown: reset again. " + serverNamedBy + "\n"},
		{"a proxy's error", "take", reply{status: 502, kind: "text/html", body: "bad gateway"},
			"status 502, content type \"text/html\"\n  " + lostEvent + " " + serverNamedBy + "\n"},
		{"a proxy's refusal", "take", reply{status: 403, kind: "text/html", body: "no"},
			"status 403, content type \"text/html\"\n  " + serverNamedBy + "\n"},
		{"a redirect", "take", reply{status: 308, location: "https://other.example/v1/take?x=" + somebody},
			"URL does not answer as ratelimitd does: status 308, content type \"application/problem+json\"," +
				" a redirect to https://other.example\n  " + serverNamedBy + "\n"},
		{"far too much", "take", reply{status: 200, body: strings.Repeat(" ", 8<<20+1)},
			"no answer from URL: it is longer than 8388608 bytes\n  " + lostEvent + "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := pretend(t, test.reply)
			code, stdout, stderr := clitest.Execute(t, nil, append(argsOf(test.verb), "--server", s.URL)...)
			if code != command.ExitError || stdout != "" || !strings.Contains(stderr, strings.ReplaceAll(test.want, "URL", s.URL)) {
				t.Errorf("exit code %d, output %q, errors:\n%s\nwant:\n%s", code, stdout, stderr, test.want)
			}
			if strings.Contains(stderr, somebody) {
				t.Errorf("the identifier is in the error:\n%s", stderr)
			}
		})
	}
}

func TestAskAServerThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for verb, cure := range map[string]string{
		"refund": "  Nothing was refunded. Is ",
		"check":  "  Is ", "take": "  Nothing was recorded. Is ", "record": "  Nothing was recorded. Is ",
		"reset": "  Nothing was forgotten. Is ",
	} {
		code, stdout, stderr := clitest.Execute(t, nil, append(argsOf(verb), "--server", address)...)
		want := "ratelimitd: http://" + address + " cannot be reached: dial tcp " + address + ": connect: connection refused\n" + cure +
			"\"ratelimitd serve\" running there? " + serverNamedBy + "\n"
		if code != command.ExitError || stdout != "" || stderr != want {
			t.Errorf("%s: exit code %d, output %q, errors:\n%s\nwant:\n%s", verb, code, stdout, stderr, want)
		}
	}
}

// A server that was asked and says nothing may have recorded the event.
func TestAskAServerThatIsSilent(t *testing.T) {
	s := silent(t)
	code, stdout, stderr := clitest.Execute(t, nil, "take", "p", somebody, "--server", s.URL, "--timeout=500ms")
	want := "ratelimitd: no answer from " + s.URL + ": nothing came within --timeout 500ms\n  " + lostEvent + "\n"
	if code != command.ExitError || stdout != "" || stderr != want {
		t.Errorf("exit code %d, output %q, errors:\n%s\nwant:\n%s", code, stdout, stderr, want)
	}
}

// The request has the arguments as given, and the identifier is in its body only.
func TestAskSends(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"check p " + somebody, `POST /v1/check {"policy":"p","identifier":"+4915112345678","cost":1}`},
		{"record p " + somebody + " --cost 7", `POST /v1/record {"policy":"p","identifier":"+4915112345678","cost":7}`},
		{"take p " + somebody, `POST /v1/take {"policy":"p","identifier":"+4915112345678","cost":1}`},
		{"check p i --reserve 1m30s", `POST /v1/check {"policy":"p","identifier":"i","cost":1,"reserve_ms":90000}`},
		{"record p i --reservation -tok", `POST /v1/record {"policy":"p","identifier":"i","reservation":"-tok"}`},
		{"record p i --reservation -tok --cost 0", `POST /v1/record {"policy":"p","identifier":"i","cost":0,"reservation":"-tok"}`},
		{"take p i --idempotency-key=my-key", `POST /v1/take {"policy":"p","identifier":"i","cost":1} my-key`},
		{"record p i --idempotency-key=my-key", `POST /v1/record {"policy":"p","identifier":"i","cost":1} my-key`},
		{"refund -- -tok", `POST /v1/refund {"receipt":"-tok"}`},
		{"reset p " + somebody, `POST /v1/reset {"policy":"p","identifier":"+4915112345678"}`},
	} {
		var got string
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = fmt.Sprintf("%s %s %s", r.Method, strings.TrimPrefix(r.RequestURI, "/behind/a/proxy"), body)
			got = strings.TrimSpace(got + " " + r.Header.Get("Idempotency-Key"))
			if r.Header.Get("Content-Type") != "application/json" || strings.Contains(fmt.Sprint(r.Header), "49") {
				t.Errorf("%s: header %v", test.args, r.Header)
			}
		}))
		clitest.Execute(t, []string{"RATELIMITD_SERVER=" + s.URL + "/behind/a/proxy/"}, strings.Fields(test.args)...)
		s.Close() // waits for the handler
		if got != test.want {
			t.Errorf("%s: asked %s, want %s", test.args, got, test.want)
		}
	}
}
