package api

import (
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// WriteDenial answers, for who serves requests of others, one that a does not allow.
func WriteDenial(w http.ResponseWriter, a *limiter.Answer, families HeaderFamilies) {
	writeElsewhere(w, &decided{Answer: *a, listed: a.Demands != nil, families: families})
}

// WriteError answers a request that could not be decided because of err, of which the client
// is told no more than its kind.
func WriteError(w http.ResponseWriter, err error) { writeElsewhere(w, problemOf(err)) }

// WriteStatus answers with a problem of that status.
func WriteStatus(w http.ResponseWriter, status int, detail string) {
	writeElsewhere(w, &problem{status: status, typ: typeBlank, detail: detail})
}

// SetHeaders tells of d in h.
func SetHeaders(h http.Header, d *limiter.Decision, families HeaderFamilies) {
	setHeaders(h, d, families)
}

func writeElsewhere(w http.ResponseWriter, a answer) {
	status, body := a.render(w.Header(), nil)
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever is gone does not miss it
}
