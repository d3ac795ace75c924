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
	place  int               // among the operations of a batch, from 1 on; 0: it is the body
	one    [1]limiter.Demand // that of a body without "demands"
	listed bool              // it has "demands", and so has the answer

	decided decided // the answer, once there is one
}

// The members of what is counted for whom, of a demand and of the body of each operation.
var (
	keyNames    = []string{"policy", "identifier"}
	demandNames = []string{"policy", "identifier", "cost"}
	takeNames   = []string{"policy", "identifier", "cost", "demands"}
	checkNames  = append(slices.Clip(takeNames), "reserve_ms")
	recordNames = append(slices.Clip(takeNames), "reservation")
)

// decodeCall reads {"policy", "identifier", "cost"} or {"demands": [...]}, and what
// else op takes: "reserve_ms", "reservation", the header Idempotency-Key.
func decodeCall(op limiter.Op) func(r *http.Request, m *scratch) (*call, error) {
	names := takeNames
	switch op {
	case limiter.OpCheck:
		names = checkNames
	case limiter.OpRecord:
		names = recordNames
	}
	return func(r *http.Request, m *scratch) (*call, error) {
		body, err := readJSON(r, m, maxBodyLen)
		if err != nil {
			return nil, err
		}
		c := &m.call
		*c = call{Call: limiter.Call{Op: op, Caller: m.caller.Name}}
		if err := c.read(body, names); err != nil {
			return nil, err
		}
		if err := c.permitted(m.caller); err != nil {
			return nil, err
		}
		if op != limiter.OpCheck || c.Reserve > 0 { // a check that holds nothing can be repeated as it is
			c.IdempotencyKey, err = idempotencyKey(r.Header)
		}
		if err == nil {
			err = m.reserve(m.room(c))
		}
		return c, err
	}
}

// read fills in c from the object v, which may have members of these names.
func (c *call) read(v value, names []string) error {
	seen, err := readObject(v, names, c.readMember)
	switch {
	case err != nil:
		return err
	case seen.has("reservation") && !seen.has("demands") && !seen.has("policy") && !seen.has("identifier") && !seen.has("cost"):
		return nil // it says itself what it is for
	case !seen.has("demands"):
		c.Demands = c.one[:]
		return requireDemand(seen)
	case seen.has("policy") || seen.has("identifier") || seen.has("cost"):
		return wrong("demands", "Give either demands, or policy, identifier and cost; not both.")
	}
	c.listed = true
	return nil
}

func (c *call) readMember(name string, v value) (err error) {
	switch name {
	case "demands":
		c.Demands, err = readDemands(v)
	case "op":
		c.Op, err = v.op()
	case "reserve_ms":
		var ms int64
		ms, err = v.integer(limiter.MinReserve.Milliseconds(), limiter.MaxReserve.Milliseconds())
		c.Reserve = time.Duration(ms) * time.Millisecond
	case "reservation":
		c.Reservation, err = v.token()
	case "idempotency_key":
		if c.IdempotencyKey, err = v.text(); err == nil {
			err = checkIdempotencyKey(c.IdempotencyKey)
		}
	default:
		err = readDemandMember(&c.one[0], name, v)
	}
	return err
}

// path is in front of the names of c's members in a problem.
func (c *call) path() string {
	if c.place == 0 {
		return ""
	}
	return "operations[" + strconv.Itoa(c.place-1) + "]."
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
		seen, err := readObject(e, demandNames, func(name string, v value) error { return readDemandMember(&list[i], name, v) })
		if err == nil {
			err = requireDemand(seen)
		}
		if err != nil {
			return nil, under(demandPath(i)[len("demands"):], err)
		}
	}
	return list, nil
}

// demandPath is what the members of demand i are called by in a problem.
func demandPath(i int) string { return "demands[" + strconv.Itoa(i) + "]." }

func readDemandMember(d *limiter.Demand, name string, v value) (err error) {
	switch name {
	case "policy":
		d.Policy, err = v.text()
	case "identifier":
		var id string
		id, err = v.text()
		d.Identifier = limiter.Identifier(id)
	case "cost":
		d.Cost, err = v.integer(1, limiter.MaxCost)
	}
	return err
}

func requireDemand(seen members) error {
	for _, name := range keyNames {
		if !seen.has(name) {
			return wrong(name, "It is missing.")
		}
	}
	return nil
}
