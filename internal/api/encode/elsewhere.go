package encode

import (
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// WriteDenial answers a request of another server, such as the proxy, that a does not allow.
func WriteDenial(w http.ResponseWriter, a *limiter.Answer, families HeaderFamilies) {
	d := &Decided{Answer: *a, Listed: a.Demands != nil, Families: families}
	write(w, d.Render)
}

// WriteError answers a request that could not be decided because of err, of which the client
// is told no more than its kind.
func WriteError(w http.ResponseWriter, err error) { write(w, ProblemOf(err).Render) }

// WriteStatus answers with a problem of that status.
func WriteStatus(w http.ResponseWriter, status int, detail string) {
	write(w, (&Problem{Status: status, Type: typeBlank, Detail: detail}).Render)
}

func write(w http.ResponseWriter, render func(h http.Header, b []byte) (status int, body []byte)) {
	status, body := render(w.Header(), nil)
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client is gone
}
