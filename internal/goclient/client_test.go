package goclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func TestTake(t *testing.T) {
	c := newService(t).overHTTP(nil)
	for i := range int64(4) {
		d, err := c.Take(t.Context(), one("sms-send", "+4915112345678"))
		if err != nil {
			t.Fatal(err)
		}
		allowed, used := i < 3, min(i+1, 3)
		switch {
		case d.Allowed != allowed || d.WouldAllow != allowed || d.Used != used || d.Remaining != 3-used || d.Limit != 3:
			t.Errorf("take %d: %+v", i, d)
		case (d.Receipt != "") != allowed || (d.RetryAfter > 0) == allowed || d.RetryAfter > time.Hour+time.Second:
			t.Errorf("take %d: %+v", i, d)
		case d.Policy != "sms-send" || d.Mode != client.ModeEnforce || d.Degraded || len(d.Limits) != 1:
			t.Errorf("take %d: %+v", i, d)
		case d.Limits[0].Name != "per-hour" || d.Limits[0].Algorithm != "sliding-log" || d.Limits[0].Window != time.Hour:
			t.Errorf("take %d: %+v", i, d.Limits[0])
		}
	}
}

func TestCheckRecordRefundReset(t *testing.T) {
	c := newService(t).overHTTP(nil)
	ctx, him := t.Context(), one("sms-send", "him")
	him.Cost = 2
	recorded, err := c.Record(ctx, him)
	if err != nil || recorded.Used != 2 || recorded.Receipt == "" {
		t.Fatalf("%+v, %v", recorded, err)
	}
	if d, err := c.Check(ctx, him); err != nil || d.Allowed || d.Used != 2 || d.Receipt != "" {
		t.Errorf("%+v, %v", d, err)
	}
	if err := c.Refund(ctx, recorded.Receipt); err != nil {
		t.Error(err)
	}
	if d, err := c.Check(ctx, him); err != nil || !d.Allowed || d.Used != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	err = c.Refund(ctx, recorded.Receipt)
	mustBe(t, err, client.ErrNoReceipt, "")
	if errors.Is(err, client.ErrInvalid) {
		t.Errorf("%v is invalid", err)
	}
	if _, err := c.Record(ctx, him); err != nil {
		t.Error(err)
	}
	if err := c.Reset(ctx, "sms-send", "him"); err != nil {
		t.Error(err)
	}
	if d, err := c.Check(ctx, him); err != nil || d.Used != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	mustBe(t, c.Reset(ctx, "nosuch", "him"), client.ErrUnknownPolicy, client.RecordedNo)
	mustBe(t, c.Refund(ctx, ""), client.ErrInvalid, client.RecordedYes)
}

func TestReserveAndSettle(t *testing.T) {
	c := newService(t).overHTTP(&client.Options{Retries: 1})
	held, err := c.Reserve(t.Context(), 30*time.Second, one("sms-send", "her"))
	if err != nil || !held.Allowed || held.Used != 1 || held.Reservation == "" {
		t.Fatalf("%+v, %v", held, err)
	}
	d, err := c.Settle(t.Context(), held.Reservation)
	if err != nil || d.Used != 1 || d.Receipt == "" {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestSeveralDemandsStandOrFallTogether(t *testing.T) {
	c := newService(t).overHTTP(nil)
	ctx := t.Context()
	d, err := c.Take(ctx, one("sms-send", "a"), one("api", "b"))
	if err != nil || !d.Allowed || len(d.Demands) != 2 || d.Demands[0].Policy != "sms-send" || d.Demands[1].Used != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	d, err = c.Take(ctx, one("api", "b"), one("closed", "c"))
	if err != nil || d.Allowed || d.RetryAfter != client.Never || !d.Demands[0].Allowed || d.Demands[1].Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err = c.Check(ctx, one("api", "b")); err != nil || d.Used != 1 || d.Demands != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestShadowTellsTheVerdict(t *testing.T) {
	c := newService(t).overHTTP(nil)
	for i := range 2 {
		d, err := c.Take(t.Context(), one("shadow", "x"))
		if err != nil || !d.Allowed || d.WouldAllow != (i == 0) || d.Mode != client.ModeShadow {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

func TestIdempotencyKeys(t *testing.T) {
	c := newService(t).overHTTP(nil)
	for i := range 2 {
		d, err := c.Do(t.Context(), client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}, IdempotencyKey: `a "key"`})
		if err != nil || d.Used != 1 || d.Replayed != (i == 1) {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// TestIdentifiersAreSentAsTheyAre, whatever JSON has to escape in them.
func TestIdentifiersAreSentAsTheyAre(t *testing.T) {
	s := newService(t)
	c := s.overHTTP(nil)
	odd := []string{`"`, `\`, `\"`, "\x00", "a\nb\x1f\x7f", "<&>", "müßig – \u202e", "\u2028", "😀", `{"policy":"x"}`, " "}
	calls := make([]client.Call, len(odd))
	for i, identifier := range odd {
		if d, err := c.Record(t.Context(), one("api", identifier)); err != nil || d.Used != 1 {
			t.Errorf("%q: %+v, %v", identifier, d, err)
		}
		calls[i] = client.Call{Op: client.OpRecord, Demands: []client.Demand{one("api", identifier)}}
		calls[i].IdempotencyKey = `"\` + names(20)[i]
	}
	for range 2 { // the second is replayed
		results, err := c.Batch(t.Context(), calls)
		for i, r := range results {
			if err != nil || r.Err != nil || r.Decision.Used != 2 {
				t.Errorf("%q: %+v, %v", odd[i], r, err)
			}
		}
	}
	for _, identifier := range odd {
		quoted, err := json.Marshal(identifier)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.used(string(quoted[1 : len(quoted)-1])); n != 2 {
			t.Errorf("%q: %d units count", identifier, n)
		}
	}
}

// mistake is a call that the service, or the client in its place, refuses.
type mistake struct {
	call  client.Call
	is    error
	field string
}

func mistakes() map[string]mistake {
	take := func(d ...client.Demand) client.Call { return client.Call{Op: client.OpTake, Demands: d} }
	with := func(change func(*client.Call)) client.Call {
		c := take(one("sms-send", "needle"))
		change(&c)
		return c
	}
	long := strings.Repeat("needle", 2000)
	many := make([]client.Demand, 17)
	for i := range many {
		many[i] = one("api", names(17)[i])
	}
	return map[string]mistake{
		"unknown policy":       {take(one("needles", "needle")), client.ErrUnknownPolicy, "policy"},
		"second unknown":       {take(one("api", "needle"), one("needles", "needle")), client.ErrUnknownPolicy, "demands[1].policy"},
		"no identifier":        {take(one("api", "")), client.ErrInvalid, "identifier"},
		"long identifier":      {take(one("api", long)), client.ErrInvalid, "identifier"},
		"not UTF-8":            {take(one("api", "needle\xff")), client.ErrInvalid, "identifier"},
		"second not UTF-8":     {take(one("api", "x"), one("needle\xff", "needle")), client.ErrInvalid, "demands[1].policy"},
		"negative cost":        {take(client.Demand{Policy: "api", Identifier: "needle", Cost: -1}), client.ErrInvalid, "cost"},
		"too great a cost":     {take(client.Demand{Policy: "sms-send", Identifier: "needle", Cost: 4}), client.ErrCostTooLarge, "cost"},
		"twice the same":       {take(one("api", "needle"), one("api", "needle")), client.ErrInvalid, "demands[1]"},
		"too many":             {take(many...), client.ErrInvalid, "demands"},
		"too long":             {take(one("api", strings.Repeat("needle", 1<<14))), client.ErrInvalid, ""},
		"no demand":            {take(), client.ErrInvalid, "demands"},
		"no operation":         {with(func(c *client.Call) { c.Op = "give" }), client.ErrInvalid, "op"},
		"a key in Greek":       {with(func(c *client.Call) { c.IdempotencyKey = "κλειδί" }), client.ErrInvalid, "idempotency_key"},
		"a long key":           {with(func(c *client.Call) { c.IdempotencyKey = long }), client.ErrInvalid, "idempotency_key"},
		"a key before a blank": {with(func(c *client.Call) { c.IdempotencyKey = "order 17 " }), client.ErrInvalid, "idempotency_key"},
		"a blank key":          {with(func(c *client.Call) { c.IdempotencyKey = " " }), client.ErrInvalid, "idempotency_key"},
		"another's key":        {with(func(c *client.Call) { c.IdempotencyKey = "taken" }), client.ErrKeyReused, "idempotency_key"},
		"take that holds":      {with(func(c *client.Call) { c.Reserve = time.Second }), client.ErrInvalid, "reserve_ms"},
		"take that settles":    {with(func(c *client.Call) { c.Reservation = "needle" }), client.ErrInvalid, "reservation"},
		"long hold": {with(func(c *client.Call) { c.Op, c.Reserve = client.OpCheck, 2*time.Hour }),
			client.ErrInvalid, "reserve_ms"},
		"no reservation": {with(func(c *client.Call) { c.Op, c.Reservation = client.OpRecord, "needle" }),
			client.ErrInvalid, "reservation"},
	}
}

// TestMistakesAreTheCallsOwn makes the same mistake alone, among others' calls and in a
// batch: it harms no other, is told alike, and tells no identifier.
func TestMistakesAreTheCallsOwn(t *testing.T) {
	c := newService(t).overHTTP(nil)
	first := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}, IdempotencyKey: "taken"}
	if _, err := c.Do(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for name, m := range mistakes() {
		t.Run(name, func(t *testing.T) {
			_, alone := c.Do(t.Context(), m.call)
			good := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "good")}}
			results, err := c.Batch(t.Context(), []client.Call{good, m.call, good})
			if err != nil || results[0].Err != nil || results[2].Err != nil {
				t.Fatalf("%+v, %v", results, err)
			}
			for _, err := range []error{alone, results[1].Err} {
				mustBe(t, err, m.is, client.RecordedNo)
				mustBe(t, err, client.ErrInvalid, client.RecordedNo)
				problem := (*client.Problem)(nil)
				if !errors.As(err, &problem) || problem.Field != m.field || errors.Is(err, client.ErrUnavailable) {
					t.Errorf("%v: the field is %q, want %q", err, problem.Field, m.field)
				}
				if strings.Contains(strings.ReplaceAll(err.Error(), "needles", ""), "needle") {
					t.Errorf("%v tells who was asked for", err)
				}
			}
			if !reflect.DeepEqual(alone, results[1].Err) {
				t.Errorf("alone %#v, in a batch %#v", alone, results[1].Err)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	s := newService(t)
	c := s.overHTTP(nil)
	calls := make([]client.Call, 1001)
	for i, name := range names(1001) {
		calls[i] = client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", name)}}
	}
	results, err := c.Batch(t.Context(), calls[:1000])
	if err != nil || len(results) != 1000 || len(s.requests()) != 1 {
		t.Fatalf("%d results of %d requests, %v", len(results), len(s.requests()), err)
	}
	for i, r := range results {
		if r.Err != nil || !r.Decision.Allowed || r.Decision.Used != 1 {
			t.Errorf("%d: %+v", i, r)
		}
	}
	for _, wrong := range [][]client.Call{nil, calls} {
		_, err := c.Batch(t.Context(), wrong)
		mustBe(t, err, client.ErrInvalid, client.RecordedNo)
	}
	for i := range calls {
		calls[i].Demands[0].Identifier = strings.Repeat("x", 2000)
	}
	_, err = c.Batch(t.Context(), calls[:1000])
	mustBe(t, err, client.ErrInvalid, client.RecordedNo)
}

// TestAPolicyThatCannotDecide has a store that is down: the service's word stands, whatever
// OnUnavailable says.
func TestAPolicyThatCannotDecide(t *testing.T) {
	for _, choice := range []client.OnUnavailable{client.FailClosed, client.FailOpen} {
		s := newService(t)
		s.down = store.ErrUnavailable
		c := s.overHTTP(&client.Options{OnUnavailable: choice})
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
		problem := (*client.Problem)(nil)
		if !errors.As(err, &problem) || problem.Status != http.StatusServiceUnavailable || problem.RetryAfter != time.Second {
			t.Errorf("%+v", problem)
		}
		call := client.Call{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}}
		results, err := c.Batch(t.Context(), []client.Call{call, call})
		if err != nil || !reflect.DeepEqual(results[0].Err, results[1].Err) || !errors.Is(results[0].Err, client.ErrUnavailable) {
			t.Errorf("%+v, %v", results, err)
		}
	}
}

func TestAddressesAndOptions(t *testing.T) {
	for _, url := range []string{
		"", "localhost:8080", "ftp://x", "http://", "http://x:y", "http://user:secret@x", "http://x?a=b", "http://x#a",
	} {
		if _, err := client.New(url, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, opts := range []client.Options{{Timeout: -1}, {Retries: -1}, {Concurrency: -1}, {ProbeInterval: -1}, {OnUnavailable: 2}} {
		if _, err := client.New("http://x", &opts); err == nil {
			t.Errorf("%+v are taken", opts)
		}
	}
	s := newService(t)
	var path, token string
	s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		path, token = r.URL.Path, r.Header.Get("Authorization")
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/limits")
		return false
	}
	header := http.Header{"Authorization": {"Bearer x"}}
	c := newClient(t, "http://ratelimitd/limits/", &client.Options{Header: header, Transport: s.transport()})
	if _, err := c.Take(t.Context(), one("api", "x")); err != nil || path != "/limits/v1/take" || token != "Bearer x" {
		t.Errorf("%s, %s, %v", path, token, err)
	}
}
