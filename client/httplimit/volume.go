package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/client"
)

// Exchange is a request and its response. The client may have left before its end.
type Exchange struct {
	Request       *http.Request // as received; its body is read
	Status        int           // of the response; 0: the handler sent none, and the server sends 200
	RequestBytes  int64         // of the body, as far as the handler read it
	ResponseBytes int64         // of the body
	Objects       int64         // the total that the handler passed to Report
}

// Measure returns the units that an exchange is charged with; less than 1: none.
type Measure func(*Exchange) int64

// Measures of common quantities.
var (
	RequestBytes  Measure = func(x *Exchange) int64 { return x.RequestBytes }
	ResponseBytes Measure = func(x *Exchange) int64 { return x.ResponseBytes }
	Objects       Measure = func(x *Exchange) int64 { return x.Objects }
)

// After charges units that are known only after the response. Before the request, the rule checks for one unit without
// taking it: a request passes while there is any left, and may exceed the limit; the next one is denied then.
func After(units Measure) RuleOption {
	return func(rule *Rule) { rule.after = units }
}

// Report adds to the Objects of ctx's request: how many rows, messages or files its response has. It does nothing if no
// rule charges after the response.
func Report(ctx context.Context, objects int64) {
	for m, _ := ctx.Value(meterKey{}).(*meter); m != nil; m = m.outer {
		m.objects.Add(objects)
	}
}

// split separates rules that take units from those that charge after the response.
func split(rules []Rule) (now, after []Rule) {
	for _, rule := range rules {
		if rule.after == nil {
			now = append(now, rule)
		} else {
			after = append(after, rule)
		}
	}
	return now, after
}

// measures has the charges of a request: a demand for each policy and identifier, and its measure.
type measures struct {
	demands []client.Demand
	by      []Measure
}

// measures returns the charges of r, with the sender's identifier as it is now: handlers change requests.
func (l *Limiter) measures(r *http.Request, rules []Rule) (all measures) {
	for _, rule := range rules {
		d := client.Demand{Policy: rule.policy, Identifier: l.identify(r, rule.identify), Cost: 1, Limit: rule.limitOf(r)}
		if !has(all.demands, &d) {
			all.demands, all.by = append(all.demands, d), append(all.by, rule.after)
		}
	}
	return all
}

// serve calls next for r and charges the resulting units, even if next panics, as a handler does to abort its response.
func (l *Limiter) serve(w http.ResponseWriter, r *http.Request, later *measures, next http.Handler) {
	if len(later.demands) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	outer, _ := r.Context().Value(meterKey{}).(*meter)
	m := &meter{ResponseWriter: w, outer: outer}
	x := &Exchange{Request: r}
	r = r.WithContext(context.WithValue(r.Context(), meterKey{}, m))
	if r.Body != nil && r.Body != http.NoBody {
		m.body = r.Body
		r.Body = requestBody{m}
	}
	defer func() {
		x.Status, x.RequestBytes, x.ResponseBytes, x.Objects = m.status, m.read.Load(), m.written, m.objects.Load()
		l.charge(x, later)
	}()
	next.ServeHTTP(m, r)
}

// maxUnits is the maximum of one demand.
const maxUnits = 1_000_000_000_000

// charge records the units of x, whatever the limits. It does so even if the client of x has left.
func (l *Limiter) charge(x *Exchange, later *measures) {
	call := client.Call{Op: client.OpRecord}
	for i, d := range later.demands {
		if d.Cost = min(later.by[i](x), maxUnits); d.Cost > 0 {
			call.Demands = append(call.Demands, d)
		}
	}
	if len(call.Demands) == 0 {
		return
	}
	d, err := l.limits.Do(context.WithoutCancel(x.Request.Context()), call)
	if err == nil && len(d.Limits) == 0 && d.Degraded { // by client.FailOpen
		err = client.ErrUnavailable
	}
	if err != nil {
		l.tellUndecided(x.Request, &call, &l.charged, "units of responses are not counted", err)
	}
}

type meterKey struct{}

// meter counts the bytes of an exchange.
type meter struct {
	http.ResponseWriter
	body  io.ReadCloser
	outer *meter // of enclosing middleware

	status  int
	written int64
	read    atomic.Int64 // a server may read while the handler writes
	objects atomic.Int64 // handlers may have several goroutines
}

// WriteHeader remembers the status.
func (m *meter) WriteHeader(status int) {
	if m.status < http.StatusOK { // an informational status precedes the final one
		m.status = status
	}
	m.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes written.
func (m *meter) Write(b []byte) (int, error) {
	m.begin()
	n, err := m.ResponseWriter.Write(b)
	m.written += int64(n)
	return n, err
}

// ReadFrom counts the bytes copied. The server may let the system copy them.
func (m *meter) ReadFrom(from io.Reader) (int64, error) {
	m.begin()
	n, err := io.Copy(m.ResponseWriter, from)
	m.written += n
	return n, err
}

func (m *meter) begin() {
	if m.status < http.StatusOK {
		m.status = http.StatusOK
	}
}

// Flush sends the bytes written, if the server can.
func (m *meter) Flush() {
	m.begin()
	_ = http.NewResponseController(m.ResponseWriter).Flush() // without it, they are sent at the end
}

// Hijack passes the connection to a handler that speaks another protocol. Its bytes are not counted.
func (m *meter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(m.ResponseWriter).Hijack()
}

// Unwrap returns the response for http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// requestBody counts the bytes read of a request.
type requestBody struct{ m *meter }

// Read counts the bytes read.
func (b requestBody) Read(p []byte) (int, error) {
	n, err := b.m.body.Read(p)
	b.m.read.Add(int64(n))
	return n, err
}

// Close closes the body.
func (b requestBody) Close() error { return b.m.body.Close() }
