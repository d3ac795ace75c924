package api

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/audit"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// keeper keeps texts. Those that begin with "wrong" have mistakes.
type keeper struct {
	texts []string
	by    []string
	err   error // of every call; nil: none
}

func (k *keeper) of(number int) PolicyVersion {
	return PolicyVersion{
		Version: int64(number), Digest: strings.Repeat("0", 64), Policies: 1, At: time.Unix(int64(number), 0).UTC(), By: k.by[number-1],
	}
}

func (k *keeper) Apply(_ context.Context, text []byte, have int64, by string) (PolicyVersion, []slog.Attr, error) {
	switch {
	case k.err != nil:
		return PolicyVersion{}, nil, k.err
	case bytes.HasPrefix(text, []byte("wrong")):
		return PolicyVersion{}, nil, &decode.Error{Kind: limiter.ErrInvalid, Detail: "policies:1: it is wrong: be right"}
	case have != AnyVersion && have != int64(len(k.texts)):
		return PolicyVersion{}, nil, encode.ErrNotLatest
	}
	k.texts, k.by = append(k.texts, string(text)), append(k.by, by)
	return k.of(len(k.texts)), []slog.Attr{slog.String("added", "p")}, nil
}

func (k *keeper) Versions(context.Context) (all []PolicyVersion, err error) {
	for i := len(k.texts); i > 0; i-- {
		all = append(all, k.of(i))
	}
	return all, k.err
}

func (k *keeper) Version(_ context.Context, number int64) (PolicyVersion, []byte, error) {
	switch {
	case k.err != nil:
		return PolicyVersion{}, nil, k.err
	case number < 1 || number > int64(len(k.texts)):
		return PolicyVersion{}, nil, encode.ErrNoVersion
	}
	return k.of(int(number)), []byte(k.texts[number-1]), nil
}

const aText = "policies: [{name: p}]\n"

// TestPutPolicies holds that right texts make versions, wrong ones are refused, and all are in the audit log.
func TestPutPolicies(t *testing.T) {
	var acts bytes.Buffer
	kept := new(keeper)
	f := newFront(t, &Options{Policies: kept, Audit: audit.New(slog.New(slog.NewJSONHandler(&acts, nil)), time.Now)}, smsSend)
	for _, c := range []struct {
		name, text, kind, ifMatch string
		status                    int
		etag, says                string
	}{
		{"no version to replace", aText, "application/yaml", "", 428, "", "If-Match"},
		{"what is no version", aText, "application/yaml", "7", 400, "", "not an ETag"},
		{"neither YAML nor JSON", aText, "text/html", `"0"`, 415, "", "application/yaml"},
		{"mistakes", "wrong", "application/yaml", `"0"`, 400, "", "policies:1: it is wrong: be right"},
		{"the first", aText, "application/yaml", `"0"`, 200, `"1"`, `"version":1`},
		{"a lost race", aText, "application/yaml", `"0"`, 412, "", "Another version is the latest"},
		{"the second, in JSON", `{"policies": []}`, "application/json", `"1"`, 200, `"2"`, `"version":2`},
		{"whatever is there", aText, "application/yaml", "*", 200, `"3"`, `"version":3`},
		{"too much", strings.Repeat("#", maxPolicies+1), "application/yaml", "*", 413, "", "1048576"},
	} {
		headers := []string{"Content-Type", c.kind}
		if c.ifMatch != "" {
			headers = append(headers, "If-Match", c.ifMatch)
		}
		res := f.do(http.MethodPut, "/v1/policies", c.text, headers...)
		body := bodyOf(t, res)
		if res.StatusCode != c.status || res.Header.Get("ETag") != c.etag || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d, ETag %s: %s", c.name, res.StatusCode, res.Header.Get("ETag"), body)
		}
	}
	for _, line := range []string{
		`"act":"policies.apply","who":"anonymous","outcome":"failed","status":400`,
		`"act":"policies.apply","who":"anonymous","outcome":"failed","status":412`,
		`"act":"policies.apply","who":"anonymous","outcome":"done","version":2,"digest":"`,
		`"added":"p"`,
	} {
		if !strings.Contains(acts.String(), line) {
			t.Errorf("no %s in the audit log:\n%s", line, acts.String())
		}
	}
	if kept.texts[0] != aText {
		t.Errorf("the first text became %q", kept.texts[0])
	}
}

// TestPolicyVersions holds that versions are listed and read.
func TestPolicyVersions(t *testing.T) {
	kept := &keeper{texts: []string{"one", "two"}, by: []string{"a", "b"}}
	f := newFront(t, &Options{Policies: kept}, smsSend)
	var list policyVersionList
	err := json.Unmarshal([]byte(bodyOf(t, f.do(http.MethodGet, "/v1/policy-versions", ""))), &list)
	if err != nil || len(list.Versions) != 2 ||
		list.Versions[0].Version != 2 || list.Versions[1].By != "a" {
		t.Errorf("listed: %+v, %v", list, err)
	}
	var one policyVersionText
	res := f.do(http.MethodGet, "/v1/policy-versions/1", "")
	err = json.Unmarshal([]byte(bodyOf(t, res)), &one)
	if err != nil || one.Text != "one" || one.Version != 1 || res.Header.Get("ETag") != `"1"` {
		t.Errorf("read: %+v, %v", one, err)
	}
	for _, path := range []string{"/v1/policy-versions/3", "/v1/policy-versions/x"} {
		if res := f.do(http.MethodGet, path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	kept.err = store.ErrUnavailable
	for _, path := range []string{"/v1/policy-versions", "/v1/policy-versions/1"} {
		if p := readProblem(t, f.do(http.MethodGet, path, "")); p.Status != http.StatusServiceUnavailable || p.Detail != storeAway {
			t.Errorf("%s without a store: %+v", path, p)
		}
	}
	kept.err = encode.ErrFromFile
	res = f.do(http.MethodPut, "/v1/policies", aText, "Content-Type", "application/yaml", "If-Match", "*")
	if res.StatusCode != http.StatusConflict {
		t.Errorf("beside a file: %d", res.StatusCode)
	}
}
