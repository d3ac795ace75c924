//go:build unix

package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// patience is how long a client waits for an answer: longer than any process is frozen, so that a call is not
// decided after the client gave up.
const patience = 15 * time.Second

var transport = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}, Timeout: patience}

// body is the body of a request.
type body struct {
	Policy      string   `json:"policy,omitempty"`
	Identifier  string   `json:"identifier,omitempty"`
	Demands     []demand `json:"demands,omitempty"`
	ReserveMS   int64    `json:"reserve_ms,omitempty"`
	Reservation string   `json:"reservation,omitempty"`
	Receipt     string   `json:"receipt,omitempty"`
	Cost        int64    `json:"cost,omitempty"`
}

type demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
}

// answer is the body of an answer.
type answer struct {
	Allowed     bool   `json:"allowed"`
	Used        int64  `json:"used"`
	Recorded    string `json:"recorded"`
	Receipt     string `json:"receipt"`
	Reservation string `json:"reservation"`
	Replayed    bool   `json:"replayed"`
	Detail      string `json:"detail"`
	Demands     []struct {
		Used int64 `json:"used"`
	} `json:"demands"`
}

// ask calls the process at address and returns its answer, and its receipt or reservation. token, a receipt or a
// reservation, names its units itself.
func ask(ctx context.Context, address string, call *history.Call, token string) (a history.Answer, reservation string) {
	b := body{ReserveMS: call.Reserve.Milliseconds(), Cost: call.Cost}
	switch {
	case call.Ends():
		b.Receipt = token
	case token != "":
		b.Reservation = token
	case len(call.Demands) == 1:
		b.Policy, b.Identifier = call.Demands[0].Policy, call.Demands[0].Identifier
	default:
		for _, d := range call.Demands {
			b.Demands = append(b.Demands, demand(d))
		}
	}
	text, err := json.Marshal(b)
	if err != nil {
		return failed(err), ""
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+"/v1/"+call.Op, bytes.NewReader(text))
	if err != nil {
		return failed(err), ""
	}
	request.Header.Set("Content-Type", "application/json")
	if call.Key != "" {
		request.Header.Set("Idempotency-Key", call.Key)
	}
	response, err := transport.Do(request)
	if err != nil {
		return failed(err), ""
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return failed(err), ""
	}
	return parse(call, response, text)
}

// failed returns the answer for a call that failed: whether it counts is unknown, unless it was never sent.
func failed(err error) history.Answer {
	a := history.Answer{Recorded: history.Unknown, Error: err.Error()}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		a.Recorded = history.No
	}
	return a
}

// parse reads an answer. If the answer does not have recorded, the status decides: units count if it allows.
func parse(call *history.Call, response *http.Response, text []byte) (history.Answer, string) {
	var got answer
	if err := json.Unmarshal(text, &got); err != nil {
		return failed(err), ""
	}
	a := history.Answer{
		Status: response.StatusCode, Allowed: got.Allowed, Receipt: got.Receipt,
		Replayed: got.Replayed || response.Header.Get("Idempotent-Replayed") != "",
		Recorded: cmp.Or(got.Recorded, history.No),
	}
	switch {
	case !a.Decided() || a.Status == http.StatusNotFound:
		a.Error = got.Detail
	case call.Ends():
		return a, ""
	case len(got.Demands) > 0:
		for _, d := range got.Demands {
			a.Used = append(a.Used, d.Used)
		}
	default:
		a.Used = []int64{got.Used}
	}
	if a.Status == http.StatusOK && call.Op != history.Check && got.Recorded == "" {
		a.Recorded = history.Yes
	}
	return a, got.Reservation
}
