package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// plainCall is a call, or an operation of a batch, as encoding/json reads it.
type plainCall struct {
	Op             count.Op       `json:"op"`
	Policy         *string        `json:"policy"`
	Identifier     *string        `json:"identifier"`
	Cost           *int64         `json:"cost"`
	Demands        *[]plainDemand `json:"demands"`
	ReserveMS      int64          `json:"reserve_ms"`
	Reservation    string         `json:"reservation"`
	IdempotencyKey string         `json:"idempotency_key"`
}

type plainDemand struct {
	Policy, Identifier string
	Cost               *int64
}

// call returns the demands of c, by op unless it names one itself.
func (c *plainCall) call(op count.Op) limiter.Call {
	if c.Op != "" {
		op = c.Op
	}
	made := limiter.Call{
		Op: op, Reserve: time.Duration(c.ReserveMS) * time.Millisecond, Reservation: c.Reservation, IdempotencyKey: c.IdempotencyKey,
	}
	var demands []plainDemand // none beside a reservation, which knows its own
	switch {
	case c.Demands != nil:
		demands = *c.Demands
	case c.Policy != nil && c.Identifier != nil:
		demands = []plainDemand{{Policy: *c.Policy, Identifier: *c.Identifier, Cost: c.Cost}}
	}
	for _, d := range demands {
		made.Demands = append(made.Demands, limiter.Demand{Policy: d.Policy, Identifier: keys.Identifier(d.Identifier), Cost: units(d.Cost)})
	}
	if len(demands) == 0 {
		made.Cost = units(c.Cost)
	}
	return made
}

// units returns a cost that may be missing, and is 0 only if it settles a reservation.
func units(cost *int64) int64 {
	switch {
	case cost == nil:
		return 0
	case *cost == 0:
		return limiter.CostNothing
	}
	return *cost
}

// post returns a request that sends body.
func post(path string, body []byte) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// onlyMistakes fails unless err is nil or a mistake of the caller.
func onlyMistakes(t *testing.T, err error) {
	t.Helper()
	var mistake *decode.Error
	if !errors.As(err, &mistake) || encode.ProblemOf(err).Status >= http.StatusInternalServerError {
		t.Fatalf("%v", err)
	}
}

// FuzzDecodeCall holds that the decoder of each operation reads what encoding/json reads.
func FuzzDecodeCall(f *testing.F) {
	for _, seed := range []string{
		oneTail, `{"demands":[` + oneTail + `,{"policy":"p","identifier":"i","cost":3}]}`, `{"demands":[],"cost":1}`,
		`{"policy":"p","identifier":"i","reserve_ms":30000}`, `{"policy":"p","identifier":"i","reservation":"r"}`,
		`{"reservation":""}`, `{"reservation":"r"}`, `{"reservation":"r","cost":0}`, `{"cost":7,"reservation":"r"}`,
		`{"policy":"p","identifier":"i","cost":0,"reservation":"r"}`, `{"demands":[{"policy":"p","identifier":"i","cost":0}],"reservation":"r"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, op := range []count.Op{count.OpCheck, count.OpRecord, count.OpTake} {
			got, err := decodeCall(op)(post("/", body), &scratch{caller: anybody()})
			if err != nil {
				onlyMistakes(t, err)
				continue
			}
			var plain plainCall
			if err := json.Unmarshal(body, &plain); err != nil {
				t.Fatalf("%q is taken: %v", body, err)
			}
			if want := plain.call(op); !reflect.DeepEqual(got.asked.Call, want) {
				t.Fatalf("%s %q: %+v, want %+v", op, body, got.asked.Call, want)
			}
			if n := len(got.asked.Demands); n > policy.MaxDemands || len(got.asked.Reservation) > decode.MaxToken {
				t.Fatalf("%s %q: past a bound", op, body)
			} else if n == 0 && (op != count.OpRecord || got.asked.Reservation == "") {
				t.Fatalf("%s %q: nothing to decide", op, body)
			}
		}
	})
}

// FuzzDecodeBatch holds that the decoder of batches reads what encoding/json reads, and reads each operation alike,
// whatever the others are.
func FuzzDecodeBatch(f *testing.F) {
	for _, seed := range []string{
		operationsOf(oneOp), operationsOf(oneOp, `1`, `{"op":"check","demands":[`+oneTail+`],"reserve_ms":1000}`, `null`),
		operationsOf(`{"op":"record","policy":"p","identifier":"i","reservation":"r"}`, `{"op":"refund"}`, `{"op":"record","reservation":"r"}`),
		operationsOf(`{"op":"record","cost":0,"reservation":"r"}`, `{"op":"record","policy":"p","identifier":"i","cost":0}`),
		`{"operations":[]}`, `{}`,
		operationsOf(`{"op":"take","policy":"p","identifier":"i","idempotency_key":"k"}`, `[{"op":"take"}]`, oneOp),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := decodeBatch(post("/", body), &scratch{caller: anybody()})
		if err != nil {
			onlyMistakes(t, err)
			return
		}
		var plain struct{ Operations []json.RawMessage }
		if err := json.Unmarshal(body, &plain); err != nil || len(plain.Operations) != len(in.ops) {
			t.Fatalf("%q is taken: %v", body, err)
		}
		decided := 0
		for i, op := range in.ops {
			if op.err != nil {
				onlyMistakes(t, op.err)
				continue
			}
			decided++
			var one plainCall
			if err := json.Unmarshal(plain.Operations[i], &one); err != nil {
				t.Fatalf("operation %d of %q is taken: %v", i, body, err)
			}
			if want := one.call(""); !reflect.DeepEqual(op.asked.Call, want) {
				t.Fatalf("operation %d of %q: %+v, want %+v", i, body, op.asked.Call, want)
			}
		}
		for _, lane := range lanesOf(in.ops, asGiven) {
			decided -= len(lane)
		}
		if decided != 0 {
			t.Fatalf("the lanes of %q have %d operations too few", body, decided)
		}
	})
}

// FuzzDecodeReceipt holds that the decoder of refunds and confirmations reads what encoding/json reads.
func FuzzDecodeReceipt(f *testing.F) {
	for _, seed := range []string{`{"receipt":"b3BhcXVl"}`, `{"receipt":""}`, `{"receipt":"\u0061"}`, `{"receipt":1}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeReceipt(post("/", body), &scratch{caller: anybody()})
		if err != nil {
			onlyMistakes(t, err)
			return
		}
		var plain struct{ Receipt string }
		if err := json.Unmarshal(body, &plain); err != nil || got != plain.Receipt || got == "" || len(got) > decode.MaxToken {
			t.Fatalf("%q: %q, %v", body, got, err)
		}
	})
}
