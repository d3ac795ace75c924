package encode

import (
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// WriteDenial writes the denial a to a request of another server, such as the proxy.
func WriteDenial(w http.ResponseWriter, a *limiter.Answer, families HeaderFamilies) {
	d := &Decided{Answer: *a, Listed: a.Demands != nil, Families: families}
	write(w, d.Render)
}

// WriteError writes the problem for err to a request of another server. The client only learns the kind of the error.
func WriteError(w http.ResponseWriter, err error) { write(w, ProblemOf(err).Render) }

// WriteStatus writes a problem with this status.
func WriteStatus(w http.ResponseWriter, status int, detail string) {
	write(w, (&Problem{Status: status, Type: typeBlank, Detail: detail}).Render)
}

func write(w http.ResponseWriter, render func(h http.Header, b []byte) (status int, body []byte)) {
	status, body := render(w.Header(), nil)
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client is gone
}
