package client

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
)

// Answers as the service gives them.
const (
	oneAnswer = `{"allowed":true,"policy":"sms-send","limit":10,"remaining":9,"used":1,"reset_after_ms":3600000,"retry_after_ms":0,` +
		`"limits":[{"name":"per-hour","algorithm":"sliding-log","limit":10,"window_ms":3600000,"allowed":true,"used":1,"remaining":9,` +
		`"reset_after_ms":3600000,"retry_after_ms":0}],"mode":"enforce","degraded":false,"receipt":"Ym_Zgn-Wf5"}`
	oneDenial = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
		`"detail":"No room.","violated-policies":["none"],"allowed":false,"policy":"closed","limit":0,"remaining":0,"used":0,` +
		`"reset_after_ms":0,"retry_after_ms":null,"limits":[{"name":"none","algorithm":"fixed-window","limit":0,"window_ms":1500,` +
		`"allowed":false,"used":0,"remaining":0,"reset_after_ms":0,"retry_after_ms":null}],"mode":"enforce","blocked":true,"reason":"country",` +
		`"override":"block","degraded":true,"recorded":"no","demands":[{"allowed":false,"policy":"closed","retry_after_ms":null}]}`
	oneProblem = `{"type":"about:blank","title":"Bad Request","status":400,` +
		`"detail":"It must be \"an\" integer – nothing else.","field":"cost"}`
	oneFailure = `{"type":"about:blank","title":"Internal Server Error","status":500,` +
		`"detail":"It failed.","recorded":"unknown","degraded":true}`
	oneShadow = ` { "allowed" : true , "would_allow" : false , "mode" : "shadow", "later":[{"a":"]"},null,1.5e3], "replayed":true} `
)

func TestAnswersAreRead(t *testing.T) {
	closed := LimitDecision{Name: "none", Algorithm: "fixed-window", Window: 1500 * time.Millisecond, RetryAfter: Never}
	hourly := LimitDecision{Name: "per-hour", Algorithm: "sliding-log", Limit: 10, Window: time.Hour,
		Allowed: true, Used: 1, Remaining: 9, ResetAfter: time.Hour}
	for name, c := range map[string]struct {
		status int
		body   string
		want   answer
	}{
		"allowed": {200, oneAnswer, answer{status: 200, decided: true, decision: Decision{Allowed: true, WouldAllow: true,
			Policy: "sms-send", Limit: 10, Remaining: 9, Used: 1, ResetAfter: time.Hour, Limits: []LimitDecision{hourly},
			Mode: ModeEnforce, Receipt: "Ym_Zgn-Wf5"}}},
		"denied": {429, oneDenial, answer{status: 429, decided: true, decision: Decision{Policy: "closed", RetryAfter: Never,
			Limits: []LimitDecision{closed}, Mode: ModeEnforce, Blocked: true, Reason: ReasonCountry,
			Override: OverrideBlock, Degraded: true, Recorded: RecordedNo,
			Demands: []Decision{{Policy: "closed", RetryAfter: Never}}}}},
		"shadow": {200, oneShadow, answer{status: 200, decided: true, verdictGiven: true,
			decision: Decision{Allowed: true, Mode: ModeShadow, Replayed: true}}},
		"problem": {400, oneProblem, answer{status: 400, problem: Problem{Type: "about:blank", Title: "Bad Request", Status: 400,
			Field: "cost", Detail: `It must be "an" integer – nothing else.`}}},
		"failure": {500, oneFailure, answer{status: 500, problem: Problem{Type: "about:blank", Title: "Internal Server Error",
			Status: 500, Detail: "It failed.", Recorded: RecordedUnknown},
			decision: Decision{Degraded: true, Recorded: RecordedUnknown}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got answer
			if err := newDecoder(c.body).readAnswer(c.status, &got); err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v\n got %+v\nwant %+v", err, got, c.want)
			}
		})
	}
}

// TestNonsenseIsRefused has texts that are no answers, or contradict themselves.
func TestNonsenseIsRefused(t *testing.T) {
	for _, body := range []string{
		``, ` `, `null`, `true`, `[]`, `{}`, `{`, `{"allowed"`, `{"allowed":`, `{"allowed":true`, `{"allowed":true,}`, `{"allowed":true}}`,
		`{"allowed":true} x`, `{"allowed":tru}`, `{"allowed":"true"}`, `{"allowed":null}`, `{"allowed":false}`, `{"allowed":true,"status":429}`,
		`{"allowed":true,"limit":1.5}`, `{"allowed":true,"limit":1e3}`, `{"allowed":true,"limit":01}`, `{"allowed":true,"limit":-}`,
		`{"allowed":true,"limit":9223372036854775808}`, `{"allowed":true,"limit":"1"}`, `{"allowed":true,"retry_after_ms":-1}`,
		`{"allowed":true,"reset_after_ms":999999999999999999}`, `{"allowed":true,"policy":"a`, `{"allowed":true,"policy":"\x"}`,
		"{\"allowed\":true,\"policy\":\"\n\"}", `{"allowed":true,"limits":{}}`, `{"allowed":true,"limits":[{]}`, `{"allowed":true,"limits":[,]}`,
		`{"allowed":true,"demands":[{}]}`, `{"allowed":true,"later":}`, `{"allowed":true,"later":[}]}`, `{"allowed":true,"later":nil}`,
		`{"allowed":true,"later":"}`, `{"allowed":true "limit":1}`, `{allowed:true}`, oneProblem,
	} {
		var a answer
		if err := newDecoder(body).readAnswer(http.StatusOK, &a); err == nil {
			t.Errorf("%s is read as %+v", body, a)
		}
	}
}

// TestResultsAreCounted makes sure that nobody is given another's answer.
func TestResultsAreCounted(t *testing.T) {
	result := `{"status":200,` + oneAnswer[1:]
	for body, ok := range map[string]bool{
		`{"results":[` + result + `,` + oneProblem + `]}`:                   true,
		`{"more":{"results":[]},"results":[` + result + `,` + result + `]}`: true,
		`{"results":[` + result + `]}`:                                      false,
		`{"results":[` + result + `,` + result + `,` + result + `]}`:        false,
		`{"results":[` + result + `,` + oneAnswer + `]}`:                    false, // without a status
		`{"results":[` + result + `,` + result + `]`:                        false,
		`{"results":{}}`: false,
		`{}`:             false,
	} {
		answers := make([]answer, 2)
		if err := newDecoder(body).readResults(2, func(i int) *answer { return &answers[i] }); (err == nil) != ok {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// FuzzAnswer holds the decoder against a slow one made of encoding/json: both take the same
// texts for the same answers.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{oneAnswer, oneDenial, oneProblem, oneFailure, oneShadow, `{"allowed":true,"limits":[],"limits":null}`} {
		f.Add([]byte(body), 200)
		f.Add([]byte(body), 429)
		f.Add([]byte(body), 400)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int) {
		var got answer
		err := newDecoder(string(body)).readAnswer(status, &got)
		want, ok := slowAnswer(status, body)
		if err != nil && ok { // a member that comes twice may be wrong the first time
			body = once(t, body)
			got = answer{}
			err = newDecoder(string(body)).readAnswer(status, &got)
		}
		if ok != (err == nil) {
			t.Fatalf("status %d, %s: %v; encoding/json reads it: %t", status, body, err, ok)
		}
		if ok && !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n got %+v\nwant %+v", body, got, want)
		}
	})
}

// once returns body with every member once, the last of its name.
func once(t *testing.T, body []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// FuzzResults is only asked not to panic, and to read nothing that is not JSON.
func FuzzResults(f *testing.F) {
	f.Add([]byte(`{"results":[{"status":200,`+oneAnswer[1:]+`,`+oneProblem+`]}`), 2)
	f.Add([]byte(`{"results":[]}`), 0)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		if n < 0 || n > maxBatchOps {
			t.Skip()
		}
		answers := make([]answer, n)
		err := newDecoder(string(body)).readResults(n, func(i int) *answer { return &answers[i] })
		if err == nil && !json.Valid(body) {
			t.Errorf("%q is read, and is not JSON", body)
		}
	})
}

func newDecoder(body string) decoder {
	return decoder{jsonscan.New([]byte(body), make(jsonscan.Names))}
}

// slowAnswer is readAnswer in terms of encoding/json.
func slowAnswer(status int, body []byte) (a answer, ok bool) {
	a.status = status
	all, ok := slowMembers(body)
	ok = ok && slowDecision(all, &a.decision, &a.decided, &a.verdictGiven)
	var problem Problem
	ok = ok && slow(all, "status", &a.status) && slow(all, "type", &problem.Type) && slow(all, "title", &problem.Title) &&
		slow(all, "detail", &problem.Detail) && slow(all, "field", &problem.Field) && slow(all, "receipt", &a.decision.Receipt) &&
		slow(all, "reservation", &a.decision.Reservation) && slow(all, "replayed", &a.decision.Replayed)
	if list, given := all["demands"]; ok && given {
		var demands []json.RawMessage
		ok = isList(list) && json.Unmarshal(list, &demands) == nil
		for _, text := range demands {
			d, decided, verdictGiven := Decision{}, false, false
			members, is := slowMembers(text)
			ok = ok && is && slowDecision(members, &d, &decided, &verdictGiven) && decided
			d.WouldAllow = d.WouldAllow || !verdictGiven && d.Allowed
			a.decision.Demands = append(a.decision.Demands, d)
		}
	}
	if !ok || a.status != status {
		return a, false
	}
	_, explained := all["detail"]
	switch {
	case a.decided && status == 200 && a.decision.Allowed, a.decided && status == 429 && !a.decision.Allowed:
		a.decision.WouldAllow = a.decision.WouldAllow || !a.verdictGiven && a.decision.Allowed
		return a, true
	case status >= 400 && status != 429 && explained:
		a.problem, a.decided = problem, false
		a.problem.Status, a.problem.Recorded = status, a.decision.Recorded
		return a, true
	}
	return a, false
}

func slowDecision(all map[string]json.RawMessage, d *Decision, decided, verdictGiven *bool) bool {
	_, *decided = all["allowed"]
	_, *verdictGiven = all["would_allow"]
	ok := slow(all, "allowed", &d.Allowed) && slow(all, "policy", &d.Policy) && slow(all, "limit", &d.Limit) &&
		slow(all, "remaining", &d.Remaining) && slow(all, "used", &d.Used) && slow(all, "mode", &d.Mode) &&
		slow(all, "would_allow", &d.WouldAllow) && slow(all, "blocked", &d.Blocked) &&
		slow(all, "reason", &d.Reason) && slow(all, "override", &d.Override) && slow(all, "degraded", &d.Degraded) &&
		slow(all, "recorded", &d.Recorded) && slowWait(all, "reset_after_ms", &d.ResetAfter) && slowWait(all, "retry_after_ms", &d.RetryAfter)
	list, given := all["limits"]
	if !ok || !given {
		return ok
	}
	var limits []json.RawMessage
	ok = isList(list) && json.Unmarshal(list, &limits) == nil
	d.Limits = make([]LimitDecision, len(limits))
	for i, text := range limits {
		l := &d.Limits[i]
		members, is := slowMembers(text)
		ok = ok && is && slow(members, "name", &l.Name) && slow(members, "algorithm", &l.Algorithm) && slow(members, "limit", &l.Limit) &&
			slow(members, "allowed", &l.Allowed) && slow(members, "used", &l.Used) && slow(members, "remaining", &l.Remaining) &&
			slowWait(members, "window_ms", &l.Window) && slowWait(members, "reset_after_ms", &l.ResetAfter) &&
			slowWait(members, "retry_after_ms", &l.RetryAfter)
	}
	return ok
}

func isList(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) }

func slowMembers(text []byte) (all map[string]json.RawMessage, ok bool) {
	return all, json.Unmarshal(text, &all) == nil && all != nil
}

func slow(all map[string]json.RawMessage, name string, into any) bool {
	text, given := all[name]
	switch {
	case !given:
		return true
	case string(text) == "null", text[0] != '"' && len(bytes.TrimPrefix(text, []byte("-"))) > jsonscan.MaxDigits:
		return false
	}
	return json.Unmarshal(text, into) == nil
}

func slowWait(all map[string]json.RawMessage, name string, into *time.Duration) bool {
	if string(all[name]) == "null" {
		*into = Never
		return name == "retry_after_ms"
	}
	var ms int64
	if !slow(all, name, &ms) || ms < 0 || ms > maxAnswerMS {
		return false
	}
	*into = time.Duration(ms) * time.Millisecond
	return true
}
