package api

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// call is the body of check, record and take, or an operation of a batch.
type call struct {
	limiter.Call
	path   string // in front of its members' names in a problem: "operations[3]."; empty: it is the body
	listed bool   // it has "demands", and so has the answer
}

// decodeCall reads {"policy", "identifier", "cost"} or {"demands": [...]}, and what
// else op takes: "reserve_ms", "reservation", the header Idempotency-Key.
func decodeCall(op limiter.Op) func(r *http.Request, m *scratch) (*call, error) {
	return func(r *http.Request, m *scratch) (*call, error) {
		body, err := readJSON(r, m, maxBodyLen)
		if err != nil {
			return nil, err
		}
		c := &call{Call: limiter.Call{Op: op}}
		switch op {
		case limiter.OpCheck:
			err = c.read(body, c.reserveField())
		case limiter.OpRecord:
			err = c.read(body, c.reservationField())
		default:
			err = c.read(body)
		}
		if err != nil {
			return nil, err
		}
		if op != limiter.OpCheck || c.Reserve > 0 { // a check that holds nothing can be repeated as it is
			c.IdempotencyKey, err = idempotencyKey(r.Header)
		}
		return c, err
	}
}

// read fills in c from the object v, which may have fields beside its demands.
func (c *call) read(v value, fields ...field) error {
	one := make([]limiter.Demand, 1)
	known := append(demandFields(&one[0]), field{"demands", func(v value) (err error) {
		c.Demands, err = readDemands(v)
		return err
	}})
	seen, err := readObject(v, c.path, append(known, fields...))
	switch {
	case err != nil:
		return err
	case seen("reservation") && !seen("demands") && !seen("policy") && !seen("identifier") && !seen("cost"):
		return nil // it says itself what it is for
	case !seen("demands"):
		c.Demands = one
		return requireDemand(seen, c.path)
	case seen("policy") || seen("identifier") || seen("cost"):
		return wrong(c.path+"demands", "Give either demands, or policy, identifier and cost; not both.")
	}
	c.listed = true
	return nil
}

func (c *call) reserveField() field {
	return field{"reserve_ms", func(v value) error {
		ms, err := v.integer(limiter.MinReserve.Milliseconds(), limiter.MaxReserve.Milliseconds())
		c.Reserve = time.Duration(ms) * time.Millisecond
		return err
	}}
}

func (c *call) reservationField() field {
	return field{"reservation", func(v value) (err error) { c.Reservation, err = v.token(); return err }}
}

// maxTokenLen bounds receipts and reservations in bytes: those of 16 demands are
// shorter.
const maxTokenLen = 4096

// token returns the receipt or the reservation that v is.
func (v value) token() (string, error) {
	text, err := v.text()
	if err == nil && (text == "" || len(text) > maxTokenLen) {
		return "", wrong("", "It must be 1 to "+strconv.Itoa(maxTokenLen)+" bytes long, as it was answered.")
	}
	return text, err
}

func readDemands(v value) ([]limiter.Demand, error) {
	if v[0] != '[' {
		return nil, v.not("an array of demands")
	}
	elements := slices.Collect(v.elements())
	if len(elements) == 0 || len(elements) > limiter.MaxDemands {
		return nil, wrong("", "A call has 1 to "+strconv.Itoa(limiter.MaxDemands)+" demands, and "+strconv.Itoa(len(elements))+" are here.")
	}
	list := make([]limiter.Demand, len(elements))
	for i, e := range elements {
		path := demandPath(i)[len("demands"):]
		seen, err := readObject(e, path, demandFields(&list[i]))
		if err == nil {
			err = requireDemand(seen, path)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// demandPath is what the fields of demand i are called by in a problem.
func demandPath(i int) string { return "demands[" + strconv.Itoa(i) + "]." }

func demandFields(d *limiter.Demand) []field {
	return append(keyFields(d), field{"cost", func(v value) (err error) {
		d.Cost, err = v.integer(1, limiter.MaxCost)
		return err
	}})
}

func requireDemand(seen func(string) bool, path string) error {
	for _, name := range []string{"policy", "identifier"} {
		if !seen(name) {
			return wrong(path+name, "It is missing.")
		}
	}
	return nil
}
