package decode

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Call is the body of check, record and take, or an operation of a batch.
type Call struct {
	limiter.Call
	Place  int  // number of the operation in a batch, from 1 on; 0: it is the body
	Listed bool // it has "demands", as will the answer

	Receipt string // that OpConfirm confirms

	one     [1]limiter.Demand // that of a body without "demands"
	settles bool              // it has a reservation, so costs may be 0
}

// The members of policy and identifier, of a demand and of the body of each operation.
var (
	KeyNames    = []string{"policy", "identifier"}
	demandNames = []string{"policy", "identifier", "cost", "limit"}
	takeNames   = []string{"policy", "identifier", "cost", "limit", "demands"}
	checkNames  = append(slices.Clip(takeNames), "reserve_ms")
	recordNames = append(slices.Clip(takeNames), "reservation")
	ofDemands   = []string{"policy", "identifier", "limit", "demands"} // which a reservation contains
)

// OpConfirm is the operation of a batch that confirms a receipt, and decides nothing.
const OpConfirm count.Op = "confirm"

// Operations are the values of "op" in a batch.
var Operations = []string{string(count.OpCheck), string(count.OpRecord), string(count.OpTake), string(OpConfirm)}

// operationNames are the members of an operation: those of a body, and the one that names the operation.
var operationNames = append(slices.Clip(takeNames), "reserve_ms", "reservation", "op", "idempotency_key", "receipt")

// NamesOf returns the members that the body of op may have; empty: those of an operation of a batch.
func NamesOf(op count.Op) []string {
	switch op {
	case "":
		return operationNames
	case count.OpCheck:
		return checkNames
	case count.OpRecord:
		return recordNames
	}
	return takeNames
}

// Read fills in c from the object v, which may have members of these names.
func (c *Call) Read(v Value, names []string) error {
	c.settles = slices.Contains(names, "reservation") && v.Has("reservation")
	seen, err := ReadObject(v, names, c.readMember)
	switch {
	case err != nil:
		return err
	case c.Op == OpConfirm || seen.Has("receipt"):
		return c.checkConfirm(seen, names)
	case seen.Has("reservation") && !slices.ContainsFunc(ofDemands, seen.Has):
		c.Cost = c.one[0].Cost
		return nil // the reservation contains the demands
	case !seen.Has("demands"):
		c.Demands = c.one[:]
		return seen.Require(KeyNames...)
	case slices.ContainsFunc(demandNames, seen.Has):
		return Wrong("demands", "Give either demands, or policy, identifier, cost and limit; not both.")
	}
	c.Listed = true
	return nil
}

// checkConfirm returns an error unless a confirmation has a receipt and nothing else.
func (c *Call) checkConfirm(seen Members, names []string) error {
	switch {
	case c.Op != OpConfirm:
		return Wrong("receipt", "Only "+string(OpConfirm)+" has it.")
	case !seen.Has("receipt"):
		return seen.Require("receipt")
	}
	for _, name := range names {
		if seen.Has(name) && name != "receipt" && name != "op" {
			return Wrong(name, string(OpConfirm)+" has a receipt, and nothing else.")
		}
	}
	return nil
}

func (c *Call) readMember(name string, v Value) (err error) {
	switch name {
	case "demands":
		c.Demands, err = readDemands(v, c.settles)
	case "op":
		c.Op, err = v.op()
	case "reserve_ms":
		var ms int64
		ms, err = v.Integer(once.MinReserve.Milliseconds(), once.MaxReserve.Milliseconds())
		c.Reserve = time.Duration(ms) * time.Millisecond
	case "reservation":
		c.Reservation, err = v.Token()
	case "receipt":
		c.Receipt, err = v.Token()
	case "idempotency_key":
		if c.IdempotencyKey, err = v.Text(); err == nil {
			err = checkIdempotencyKey(c.IdempotencyKey)
		}
	default:
		err = readDemand(&c.one[0], name, v, c.settles)
	}
	return err
}

// Path returns the prefix of the names of c's members in a problem.
func (c *Call) Path() string {
	if c.Place == 0 {
		return ""
	}
	return "operations[" + strconv.Itoa(c.Place-1) + "]."
}

// MaxToken is the maximum length of receipts and reservations in bytes. Those of 16 demands are shorter.
const MaxToken = 4096

// Token returns v as a receipt or a reservation.
func (v Value) Token() (string, error) {
	text, err := v.Text()
	if err == nil && (text == "" || len(text) > MaxToken) {
		return "", Wrong("", "It must be 1 to "+strconv.Itoa(MaxToken)+" bytes long, as it was answered.")
	}
	return text, err
}

// ReadKey reads {"policy", "identifier"}, and the other members of a demand in names.
func ReadKey(v Value, names []string) (d limiter.Demand, err error) {
	seen, err := ReadObject(v, names, func(name string, v Value) error { return ReadDemand(&d, name, v) })
	if err == nil {
		err = seen.Require(KeyNames...)
	}
	return d, err
}

func readDemands(v Value, settles bool) ([]limiter.Demand, error) {
	if v[0] != '[' {
		return nil, v.Not("an array of demands")
	}
	elements := slices.Collect(v.Elements())
	if len(elements) == 0 || len(elements) > policy.MaxDemands {
		return nil, Wrong("", "A call has 1 to "+strconv.Itoa(policy.MaxDemands)+" demands, and "+strconv.Itoa(len(elements))+" are here.")
	}
	list := make([]limiter.Demand, len(elements))
	for i, e := range elements {
		seen, err := ReadObject(e, demandNames, func(name string, v Value) error { return readDemand(&list[i], name, v, settles) })
		if err == nil {
			err = seen.Require(KeyNames...)
		}
		if err != nil {
			return nil, Under(DemandPath(i)[len("demands"):], err)
		}
	}
	return list, nil
}

// DemandPath returns the prefix of the names of demand i's members in a problem.
func DemandPath(i int) string { return "demands[" + strconv.Itoa(i) + "]." }

// ReadDemand reads the member called name of a demand into d.
func ReadDemand(d *limiter.Demand, name string, v Value) error { return readDemand(d, name, v, false) }

// readDemand is ReadDemand for a demand whose cost may be 0 if it settles a reservation.
func readDemand(d *limiter.Demand, name string, v Value, settles bool) (err error) {
	switch name {
	case "policy":
		d.Policy, err = v.Text()
	case "identifier":
		var id string
		id, err = v.Text()
		d.Identifier = keys.Identifier(id)
	case "cost":
		if !settles {
			d.Cost, err = v.Integer(1, policy.MaxCost)
		} else if d.Cost, err = v.Integer(0, policy.MaxCost); d.Cost == 0 {
			d.Cost = limiter.CostNothing
		}
	case "limit":
		d.Limit, err = v.Integer(1, policy.MaxLimit)
	}
	return err
}

// op returns the operation that v names.
func (v Value) op() (count.Op, error) {
	name, err := v.Text()
	if err == nil && !slices.Contains(Operations, name) {
		err = Wrong("", "It must be one of "+strings.Join(Operations, ", ")+".")
	}
	return count.Op(name), err
}
