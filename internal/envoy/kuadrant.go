package envoy

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The messages of Reserve and Commit in Limitador's kuadrantrls.proto, which no module has the code of. Domain and
// descriptors have the numbers that they have in a RateLimitRequest.

// estimate is what the requests of Reserve and Commit share.
type estimate struct {
	request     rls.RateLimitRequest // its domain and descriptors
	amount      uint64
	amountField string
}

// reserveRequest is the request of Reserve.
type reserveRequest struct {
	estimate
	ttl *durationpb.Duration // nil: it is not there
}

// reserveResponse is the answer of Reserve.
type reserveResponse struct {
	code rls.RateLimitResponse_Code
	id   string // of the reservation; empty: nothing is held
}

// commitRequest is the request of Commit.
type commitRequest struct {
	estimate
	reservation string // empty: none
}

// commitResponse is the answer of Commit.
type commitResponse struct{ released bool }

// received is a message that is read by hand.
type received interface {
	shared() *estimate
	// read reads the field of that number, which has a number or bytes.
	read(field protowire.Number, number uint64, bytes []byte) error
}

// sent is a message that is written by hand.
type sent interface{ append(b []byte) []byte }

func (e *estimate) shared() *estimate { return e }

// Numbers of fields.
const (
	reserveAmount, reserveTTL             = 3, 4
	commitReservation, commitActualAmount = 3, 4
)

func (r *reserveRequest) read(field protowire.Number, number uint64, bytes []byte) error {
	r.amountField = "amount"
	switch {
	case field == reserveAmount && bytes == nil:
		r.amount = number
	case field == reserveTTL && bytes != nil:
		r.ttl = new(durationpb.Duration)
		return proto.Unmarshal(bytes, r.ttl)
	}
	return nil
}

func (r *commitRequest) read(field protowire.Number, number uint64, bytes []byte) error {
	r.amountField = "actual_amount"
	switch {
	case field == commitReservation && bytes != nil:
		r.reservation = string(bytes)
	case field == commitActualAmount && bytes == nil:
		r.amount = number
	}
	return nil
}

func (r *reserveResponse) append(b []byte) []byte {
	if r.code != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(r.code))
	}
	if r.id != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), r.id)
	}
	return b
}

func (r *commitResponse) append(b []byte) []byte {
	if r.released {
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 1)
	}
	return b
}

// readFields has into read the fields of wire, a message, that have numbers or bytes.
func readFields(wire []byte, into received) error {
	for len(wire) > 0 {
		field, kind, tag := protowire.ConsumeTag(wire)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		n, number, bytes := 0, uint64(0), []byte(nil)
		switch wire = wire[tag:]; kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(wire)
		case protowire.BytesType:
			if bytes, n = protowire.ConsumeBytes(wire); bytes == nil {
				bytes = []byte{}
			}
		default:
			n = protowire.ConsumeFieldValue(field, kind, wire)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := into.read(field, number, bytes); err != nil {
				return err
			}
		}
		wire = wire[n:]
	}
	return nil
}
