package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// problemBody is a problem as clients read it.
type problemBody struct {
	Type, Title, Detail, Field, Recorded string
	Status                               int
}

func readProblem(t *testing.T, res *http.Response) problemBody {
	t.Helper()
	body := bodyOf(t, res)
	var p problemBody
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if p.Status != res.StatusCode || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d as %s, and the problem says %d", res.StatusCode, res.Header.Get("Content-Type"), p.Status)
	}
	return p
}

// TestWrongBodies holds the answers to wrong bodies. All have the identifier "+49secret", which must be in no answer
// and no log line.
func TestWrongBodies(t *testing.T) {
	id := `"identifier":"+49secret"`
	api := `{"policy":"api",` + id
	for _, c := range []struct {
		name, body string
		status     int
		field      string
		detail     string // a part of it
	}{
		{"nothing", "", 400, "", "empty"},
		{"spaces", " \n", 400, "", "empty"},
		{"cut short", api, 400, "", "goes wrong at byte 40"},
		{"a stray byte", `{"policy":x+49secret}`, 400, "", "goes wrong at byte 11"},
		{"a single quote", `{'policy':'api'}`, 400, "", "goes wrong at byte 2"},
		{"a trailing comma", api + `,}`, 400, "", "goes wrong"},
		{"a second value", api + `}{"a":1}`, 400, "", "more after the JSON value, at byte 42"},
		{"a second brace", api + `}}`, 400, "", "more after"},
		{"invalid UTF-8", "{\"policy\":\"api\",\"identifier\":\"+49secret\xff\"}", 400, "", "UTF-8"},
		{"half a character", `{"policy":"api","identifier":"+49secret\ud83d"}`, 400, "identifier", "half a character"},
		{"the other half", `{"policy":"api","identifier":"+49secret\ude00\ud83d"}`, 400, "identifier", "half a character"},
		{"half a character in a name", `{"policy":"api",` + id + `,"\ud83d":1}`, 400, "", "not a known field"},
		{"an array", `[` + api + `}]`, 400, "", "an object, not an array"},
		{"a string", `"+49secret"`, 400, "", "an object, not a string"},
		{"null", `null`, 400, "", "an object, not null"},
		{"an unknown member", api + `,"reserve_ms":1}`, 400, "reserve_ms", "policy, identifier, cost, limit, demands"},
		{"another case", `{"Policy":"api",` + id + `}`, 400, "Policy", "not a known field"},
		{"an identifier for a name", api + `,"+49secret":1}`, 400, "", "not a known field"},
		{"a long name", api + `,"` + strings.Repeat("a", 33) + `":1}`, 400, "", "not a known field"},
		{"a member twice", api + `,"policy":"api"}`, 400, "policy", "more than once"},
		{"a member twice, once escaped", api + `,"polic\u0079":"api"}`, 400, "policy", "more than once"},
		{"no policy", `{` + id + `}`, 400, "policy", "missing"},
		{"no identifier", `{"policy":"api"}`, 400, "identifier", "missing"},
		{"a policy of null", `{"policy":null,` + id + `}`, 400, "policy", "a string, not null"},
		{"an identifier of digits", `{"policy":"api","identifier":49}`, 400, "identifier", "a string, not a number"},
		{"an empty identifier", `{"policy":"api","identifier":""}`, 400, "identifier", "1024"},
		{"a long identifier", `{"policy":"api","identifier":"+49secret` + strings.Repeat("0", 1016) + `"}`, 400, "identifier", "1024"},
		{"an unknown policy", `{"policy":"+49secret",` + id + `}`, 404, "policy", "No policy"},
		{"a cost of text", api + `,"cost":"1"}`, 400, "cost", "an integer, not a string"},
		{"a cost of null", api + `,"cost":null}`, 400, "cost", "an integer, not null"},
		{"a cost of true", api + `,"cost":true}`, 400, "cost", "an integer, not a boolean"},
		{"a cost with a fraction", api + `,"cost":1.0}`, 400, "cost", "without fraction"},
		{"a cost with an exponent", api + `,"cost":1e3}`, 400, "cost", "exponent"},
		{"no cost", api + `,"cost":0}`, 400, "cost", "from 1 to 1000000000000"},
		{"a negative cost", api + `,"cost":-1}`, 400, "cost", "from 1 to"},
		{"a cost past the bound", api + `,"cost":1000000000001}`, 400, "cost", "from 1 to"},
		{"a cost past all integers", api + `,"cost":99999999999999999999}`, 400, "cost", "from 1 to"},
		{"a cost past the limit", api + `,"cost":1001}`, 422, "cost", "ever hold"},
		{"demands and more", `{"demands":[` + api + `}],"cost":1}`, 400, "demands", "not both"},
		{"both forms of a demand", `{"demands":[` + api + `}],"identifier":"+49secret"}`, 400, "demands", "not both"},
		{"a limit of text", api + `,"limit":"5"}`, 400, "limit", "an integer, not a string"},
		{"no limit", api + `,"limit":0}`, 400, "limit", "from 1 to 1000000000000000"},
		{"a negative limit", api + `,"limit":-1}`, 400, "limit", "from 1 to"},
		{"a limit of null", api + `,"limit":null}`, 400, "limit", "an integer, not null"},
		{"a limit with a fraction", api + `,"limit":1.5}`, 400, "limit", "without fraction"},
		{"a limit that is no number", api + `,"limit":NaN}`, 400, "limit", "JSON has no NaN"},
		{"an infinite limit", `{"limit": -Infinity,"policy":"api",` + id + `}`, 400, "limit", "no infinite numbers"},
		{"a demand's limit that is no number", `{"demands":[` + api + `},` + api + `,"limit":NaN}]}`, 400, "demands[1].limit", "JSON has no NaN"},
		{"no number in an unknown member", api + `,"+49secret":NaN}`, 400, "", "goes wrong"},
		{"a limit that the policy does not take", api + `,"limit":5}`, 400, "limit", "takes none from a request: remove it"},
		{"a demand's limit that the policy does not take", `{"demands":[` + api + `,"limit":5}]}`, 400, "demands[0].limit", "takes none"},
		{"a demand's limit of none", `{"demands":[` + api + `,"limit":0}]}`, 400, "demands[0].limit", "from 1 to"},
		{"limit and demands", `{"demands":[` + api + `}],"limit":1}`, 400, "demands", "not both"},
		{"no demands", `{"demands":[]}`, 400, "demands", "1 to 16 demands, and 0 are here"},
		{"too many demands", `{"demands":[` + strings.Repeat(api+`},`, 16) + api + `}]}`, 400, "demands", "1 to 16 demands, and 17"},
		{"the same demand twice", `{"demands":[` + api + `},` + api + `,"cost":2}]}`, 400, "demands[1]", "as demands[0]"},
		{"a wrong demand among several", `{"demands":[` + api + `},{"policy":"api","identifier":""}]}`, 400, "demands[1].identifier", "1024"},
		{"an unknown policy among several", `{"demands":[` + api + `},{"policy":"+49secret","identifier":"a"}]}`,
			404, "demands[1].policy", "No policy"},
		{"a cost past the limit among several", `{"demands":[` + api + `},{"policy":"api","identifier":"a","cost":1001}]}`,
			422, "demands[1].cost", "ever hold"},
		{"a reservation of a take", api + `,"reservation":"+49secret"}`, 400, "reservation", "not a known field"},
		{"an idempotency key in the body", api + `,"idempotency_key":"+49secret"}`, 400, "idempotency_key", "not a known field"},
		{"demands as an object", `{"demands":{}}`, 400, "demands", "an array of demands, not an object"},
		{"a demand of text", `{"demands":["+49secret"]}`, 400, "demands[0]", "an object, not a string"},
		{"a demand's unknown member", `{"demands":[` + api + `,"op":1}]}`, 400, "demands[0].op", "fields: policy, identifier, cost, limit."},
		{"a demand's cost", `{"demands":[` + api + `,"cost":"1"}]}`, 400, "demands[0].cost", "an integer"},
		{"a demand's missing member", `{"demands":[{` + id + `}]}`, 400, "demands[0].policy", "missing"},
		{"a demand past the limit", `{"demands":[` + api + `,"cost":1001}]}`, 422, "demands[0].cost", "ever hold"},
		{"too much", `{"policy":"` + strings.Repeat("a", decode.MaxBody) + `"}`, 413, "", "65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, nil, tail)
			res := f.do(http.MethodPost, "/v1/take", c.body)
			if id := res.Header.Get("X-Request-ID"); id != "test" {
				t.Errorf("request id %q", id)
			}
			p := readProblem(t, res)
			if p.Status != c.status || p.Field != c.field || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%+v, want %d, field %q and %q", p, c.status, c.field, c.detail)
			}
			if told := p.Detail + p.Field + f.log.String(); strings.Contains(told, "secret") {
				t.Errorf("an identifier is told: %s", told)
			}
		})
	}
}

// TestRightBodies holds that bodies that look wrong are accepted.
func TestRightBodies(t *testing.T) {
	for _, body := range []string{
		" { \"identifier\" :\t\"a\" ,\r\n\"policy\": \"api\" } \n",
		`{"policy":"api","identifier":"\ud83d\ude00 \u0000 \\u \"","cost":1000}`,
		`{"polic\u0079":"\u0061pi","identifier":"{\"a\":[1,2]}"}`,
		`{"demands":[ {"policy":"api","identifier":"a","cost":1} ]}`,
		`{"policy":"api","identifier":"` + strings.Repeat("é", 512) + `"}`,
		oneTail + strings.Repeat(" ", decode.MaxBody-len(oneTail)),
	} {
		if res := newFront(t, nil, tail).do(http.MethodPost, "/v1/take", body); res.StatusCode != http.StatusOK {
			t.Errorf("%d for %.80s: %s", res.StatusCode, body, bodyOf(t, res))
		}
	}
}

// TestContentTypes holds that bodies that are not declared as JSON are refused.
func TestContentTypes(t *testing.T) {
	for declared, status := range map[string]int{
		"application/json":                      200,
		"application/json; charset=utf-8":       200,
		`Application/JSON;charset="UTF-8"; v=1`: 200,
		"application/json; charset=utf-16":      415,
		"application/problem+json":              415,
		"application/x-www-form-urlencoded":     415,
		"text/plain":                            415,
		"application/json, application/json":    415,
		"":                                      415,
	} {
		res := newFront(t, nil, tail).do(http.MethodPost, "/v1/take", oneTail, "Content-Type", declared)
		if res.StatusCode != status {
			t.Errorf("%q: %d, want %d", declared, res.StatusCode, status)
		}
		if status == http.StatusUnsupportedMediaType {
			if p := readProblem(t, res); p.Field != "Content-Type" {
				t.Errorf("%+v", p)
			}
		}
	}
	res := newFront(t, nil, tail).do(http.MethodPost, "/v1/take", oneTail, "Content-Encoding", "gzip")
	if res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("gzip: %d", res.StatusCode)
	}
}

// TestWrongCalls holds the answers to wrong values of members that only some routes take.
func TestWrongCalls(t *testing.T) {
	with := func(member string) string { return strings.Replace(oneTail, "}", ","+member+"}", 1) }
	long := strings.Repeat("a", decode.MaxToken+1)
	for _, c := range []struct {
		name, path, body string
		status           int
		field            string
		detail           string // a part of it
	}{
		{"a hold of text", "/v1/check", with(`"reserve_ms":"30000"`), 400, "reserve_ms", "an integer, not a string"},
		{"a hold of no time", "/v1/check", with(`"reserve_ms":0`), 400, "reserve_ms", "from 1 to 3600000"},
		{"a hold that is too short", "/v1/check", with(`"reserve_ms":0`), 400, "reserve_ms", "from 1 to 3600000"},
		{"a hold that is too long", "/v1/check", with(`"reserve_ms":3600001`), 400, "reserve_ms", "from 1 to 3600000"},
		{"a hold by a record", "/v1/record", with(`"reserve_ms":30000`), 400, "reserve_ms", "cost, limit, demands, reservation."},
		{"a reservation of a check", "/v1/check", with(`"reservation":"a"`), 400, "reservation", "demands, reserve_ms."},
		{"a reservation of a number", "/v1/record", with(`"reservation":1`), 400, "reservation", "a string, not a number"},
		{"an empty reservation", "/v1/record", with(`"reservation":""`), 400, "reservation", "1 to 4096"},
		{"a long reservation", "/v1/record", with(`"reservation":"` + long + `"`), 400, "reservation", "1 to 4096"},
		{"a reservation of another service", "/v1/record", with(`"reservation":"b3BhcXVl"`), 400, "reservation", "of this service"},
		{"no cost without a reservation", "/v1/record", with(`"cost":0`), 400, "cost", "from 1 to 1000000000000"},
		{"a negative settlement", "/v1/record", `{"reservation":"a","cost":-1}`, 400, "cost", "from 0 to 1000000000000"},
		{"a settlement before its reservation", "/v1/record", `{"cost":-1,"reservation":"a"}`, 400, "cost", "from 0 to"},
		{"a settlement past the bound", "/v1/record", with(`"cost":1000000000001,"reservation":"a"`), 400, "cost", "from 0 to"},
		{"a settlement that is no number", "/v1/record", `{"reservation":"a","cost":NaN}`, 400, "cost", "JSON has no NaN"},
		{"a settlement without end", "/v1/record", `{"reservation":"a","cost":Infinity}`, 400, "cost", "no infinite numbers"},
		{"a settlement with an exponent", "/v1/record", `{"reservation":"a","cost":1e30}`, 400, "cost", "exponent"},
		{"a settlement with a fraction", "/v1/record", `{"reservation":"a","cost":12.5}`, 400, "cost", "without fraction"},
		{"a settlement of text", "/v1/record", `{"reservation":"a","cost":"13"}`, 400, "cost", "an integer, not a string"},
		{"a demand that is settled below nothing", "/v1/record", `{"reservation":"a","demands":[` + with(`"cost":-1`) + `]}`,
			400, "demands[0].cost", "from 0 to"},
		{"a settlement of nobody", "/v1/record", `{"reservation":"a","cost":1,"policy":"tail"}`, 400, "identifier", "missing"},
		{"a settlement of one and of several", "/v1/record", `{"reservation":"a","cost":1,"demands":[` + oneTail + `]}`,
			400, "demands", "not both"},
		{"a cost of nothing in a batch", "/v1/record", `{"demands":[` + with(`"cost":0`) + `]}`, 400, "demands[0].cost", "from 1 to"},
		{"no receipt", "/v1/refund", `{}`, 400, "receipt", "missing"},
		{"an empty receipt", "/v1/refund", `{"receipt":""}`, 400, "receipt", "1 to 4096"},
		{"a long receipt", "/v1/refund", `{"receipt":"` + long + `"}`, 400, "receipt", "1 to 4096"},
		{"a receipt of a number", "/v1/refund", `{"receipt":1}`, 400, "receipt", "a string, not a number"},
		{"a receipt and more", "/v1/refund", `{"receipt":"a","policy":"api"}`, 400, "policy", "fields: receipt."},
		{"a refund of an array", "/v1/refund", `["a"]`, 400, "", "an object, not an array"},
		{"a receipt of another service", "/v1/refund", `{"receipt":"b3BhcXVl"}`, 404, "receipt", "nothing to refund"},
		{"a receipt that is nearly too long", "/v1/refund", `{"receipt":"` + long[1:] + `"}`, 404, "receipt", "nothing to refund"},
		{"a refund that is too much", "/v1/refund", `{"receipt":"` + strings.Repeat("a", decode.MaxBody) + `"}`, 413, "", "65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := readProblem(t, newFront(t, nil, tail).do(http.MethodPost, c.path, c.body))
			if p.Status != c.status || p.Field != c.field || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%+v, want %d, field %q and %q", p, c.status, c.field, c.detail)
			}
		})
	}
}

// TestIdempotencyKeys holds which keys are accepted. A check that holds nothing can be repeated, and needs none.
func TestIdempotencyKeys(t *testing.T) {
	reserve := strings.Replace(oneTail, "}", `,"reserve_ms":1000}`, 1)
	for _, c := range []struct {
		name, path, body string
		keys             []string
		status           int
		detail           string // a part of it
	}{
		{"a UUID", "/v1/take", oneTail, []string{"0192b6c1-7e4e-7b1d-9f5e-8c0d3f1a2b3c"}, 200, ""},
		{"any printable text", "/v1/record", oneTail, []string{`"a b" ~!`}, 200, ""},
		{"the longest", "/v1/take", oneTail, []string{strings.Repeat("a", 255)}, 200, ""},
		{"one byte more", "/v1/take", oneTail, []string{strings.Repeat("a", 256)}, 400, "1 to 255 bytes"},
		{"none", "/v1/record", oneTail, []string{""}, 400, "1 to 255 bytes"},
		{"two", "/v1/take", oneTail, []string{"a", "b"}, 400, "more than once"},
		{"a tab", "/v1/take", oneTail, []string{"a\tb"}, 400, "printable ASCII"},
		{"a letter that is not ASCII", "/v1/take", oneTail, []string{"é"}, 400, "printable ASCII"},
		{"of a check", "/v1/check", oneTail, []string{"", ""}, 200, ""},
		{"of a check that reserves", "/v1/check", reserve, []string{"a"}, 400, "a check records nothing"},
		{"of a batch", "/v1/batch", `{"operations":[]}`, []string{"a"}, 400, "give its operations an idempotency_key each"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, nil, tail)
			r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			r.Header["Idempotency-Key"] = c.keys
			w := httptest.NewRecorder()
			f.server.ServeHTTP(w, r)
			if w.Code != c.status {
				t.Errorf("%d, want %d: %s", w.Code, c.status, w.Body)
			}
			if c.status == http.StatusOK {
				return
			}
			if p := readProblem(t, w.Result()); p.Field != "Idempotency-Key" || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%+v, want %q", p, c.detail)
			}
			if f.store.Len() != 0 {
				t.Error("something was counted")
			}
		})
	}
}

// TestStoreFailure holds the answers while the store does not answer.
func TestStoreFailure(t *testing.T) {
	f := newFront(t, nil, tail, lenient)
	f.store.err = errStoreDown
	f.story("store-failure", []step{
		{path: "/v1/check", body: oneTail},
		{path: "/v1/take", body: oneTail},
		{path: "/v1/record", body: oneTail},
		{path: "/v1/reset", body: oneTail},
		{path: "/v1/take", body: `{"demands":[` + oneTail + `]}`},
		{path: "/v1/take", body: `{"demands":[` + oneTail + `,{"policy":"lenient","identifier":"a"}]}`},
		{path: "/v1/take", body: oneTail, headers: []string{"Idempotency-Key", "a"}},
		{path: "/v1/check", body: strings.Replace(oneTail, "}", `,"reserve_ms":1000}`, 1)},
		{path: "/v1/refund", body: `{"receipt":"a"}`},
		{path: "/v1/batch", body: `{"operations":[` + oneOp + `,{"op":"take","policy":"lenient","identifier":"a"}]}`},
		{path: "/v1/check", body: `{"policy":"lenient","identifier":"a"}`},
		{path: "/v1/take", body: `{"policy":"lenient","identifier":"a"}`},
		{method: http.MethodGet, path: "/healthz"},
	})
	if n := strings.Count(f.log.String(), "level=WARN"); n != 1 { // the clock stands still
		t.Errorf("%d warnings within one second, want 1: %s", n, f.log)
	}
	if !strings.Contains(f.log.String(), "no host answers") {
		t.Errorf("the log does not say why: %s", f.log)
	}
}

// TestOverload holds that a bound that is reached is distinguished from a store that does not answer.
func TestOverload(t *testing.T) {
	f := newFront(t, nil, tail)
	f.store.err = store.ErrOverloaded
	p := readProblem(t, f.do(http.MethodPost, "/v1/take", oneTail))
	if p.Status != http.StatusServiceUnavailable ||
		!strings.HasSuffix(p.Type, "#temporary-reduced-capacity") || !strings.Contains(p.Detail, "bounds") {
		t.Errorf("%+v", p)
	}
}

// TestUnknownErrors holds that no text of an unknown error is answered, and that the units may count.
func TestUnknownErrors(t *testing.T) {
	f := newFront(t, nil)
	for _, c := range []struct {
		call limiter.Call
		want string
	}{
		{limiter.Call{Op: count.OpTake}, "unknown"},
		{limiter.Call{Op: count.OpCheck}, "no"},
		{limiter.Call{Op: count.OpCheck, Reserve: time.Second}, "unknown"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/"+string(c.call.Op), nil)
		f.server.fail(f.server.begin(w, r), r, (&decode.Call{Call: c.call}).Failed("", errors.New("host-7 is on fire")))
		p := readProblem(t, w.Result())
		if p.Status != http.StatusInternalServerError || strings.Contains(p.Detail, "host-7") || p.Recorded != c.want {
			t.Errorf("%+v: %+v", c.call, p)
		}
	}
}

// TestBodiesThatDoNotArrive holds the answers to a body that is cut off, and to one that is too slow.
func TestBodiesThatDoNotArrive(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{{io.ErrUnexpectedEOF, 400}, {os.ErrDeadlineExceeded, 408}} {
		r := httptest.NewRequest(http.MethodPost, "/v1/take", iotest.ErrReader(c.err))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		newFront(t, nil, tail).server.ServeHTTP(w, r)
		if p := readProblem(t, w.Result()); p.Status != c.status {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
}

// TestLongBodyOfUnknownLength holds that a body of unknown length is read up to the bound.
func TestLongBodyOfUnknownLength(t *testing.T) {
	endless := io.MultiReader(strings.NewReader(`{"policy":"`), spaces{})
	r := httptest.NewRequest(http.MethodPost, "/v1/take", endless)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	newFront(t, nil, tail).server.ServeHTTP(w, r)
	if p := readProblem(t, w.Result()); p.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("%+v", p)
	}
}

// spaces is an endless body.
type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// TestRetryAfterIsAtLeastASecond holds that no Retry-After is 0.
func TestRetryAfterIsAtLeastASecond(t *testing.T) {
	f := newFront(t, nil, policy.Policy{Name: "p", Limits: []policy.Limit{perMinute(1)}})
	body := `{"policy":"p","identifier":"a"}`
	f.do(http.MethodPost, "/v1/take", body)
	for left, want := range map[time.Duration]string{
		time.Minute: "60", 59001 * time.Millisecond: "60", 59 * time.Second: "59", 1500 * time.Millisecond: "2", time.Millisecond: "1",
	} {
		f.set(time.Date(2026, 3, 1, 12, 1, 0, 0, time.UTC).Add(-left))
		if got := f.do(http.MethodPost, "/v1/check", body).Header.Get("Retry-After"); got != want {
			t.Errorf("%v before: %q, want %q", left, got, want)
		}
	}
}
