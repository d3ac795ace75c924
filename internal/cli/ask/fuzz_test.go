package ask

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

// FuzzDecisions reads what any server may answer: nothing that is printed of a decision steers a
// terminal, and no more than is bounded.
func FuzzDecisions(f *testing.F) {
	const allowed = `{"allowed":true,"policy":"p","limit":1,"limits":[{"name":"n","allowed":true,"limit":1,"retry_after_ms":0}]}`
	f.Add(http.StatusOK, []byte(allowed))
	f.Add(http.StatusTooManyRequests, []byte(strings.ReplaceAll(allowed, "true", "false")))
	f.Add(http.StatusOK, []byte(`{"allowed":true,"policy":"\u001b[31m","limits":[{}],"receipt":"\u202e","would_allow":false}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		mediaType := "application/json"
		if status != http.StatusOK {
			mediaType = "application/problem+json"
		}
		d := decisionIn(&remote.Answer{Status: status, MediaType: mediaType, Body: body})
		if d == nil {
			return
		}
		var table bytes.Buffer
		d.write(&table, "take")
		checkPrintable(t, table.String())
	})
}

func checkPrintable(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Fatalf("%q steers a terminal", text)
	}
}
