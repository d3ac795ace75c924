package client

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Op is the operation of a call.
type Op string

// The operations.
const (
	OpCheck  Op = "check"  // would this be allowed now? Records nothing
	OpRecord Op = "record" // records the event, whatever the limit
	OpTake   Op = "take"   // checks and records as one step
	// OpConfirm confirms that the units of a receipt were real. It is for a Batch; a single one is Client.Confirm.
	OpConfirm Op = "confirm"
)

// Demand asks for some units of one policy for one identifier.
type Demand struct {
	Policy     string
	Identifier string // who is counted: 1 to 1024 bytes of UTF-8; the service stores a hash of it
	Cost       int64  // units; 0 means 1; CostNothing: a settlement used none
	// Limit is how many units the identifier may have, under a policy that takes its limit from requests; 0: its default.
	// It must be what the application knows of its customer, never what an end user sends.
	Limit int64
}

// CostNothing is the cost, in a Demand or a Call that settles a reservation, that frees all its units.
const CostNothing int64 = -1

// Call is one question with all its options. For most, Check, Record and Take are shorter.
type Call struct {
	Op Op
	// Demands stand or fall together: all are recorded or none is. Up to 16, none twice. A
	// record with a Reservation needs none, and a confirm has none.
	Demands []Demand
	// Reserve is how long a check that allows holds the units, in whole milliseconds, from 1 to an hour; 0: it holds none.
	Reserve time.Duration
	// Reservation is the one of a check, for a record to settle; empty: none.
	Reservation string
	// Cost is how many units each demand of a Reservation used, in a call without Demands: 0 means as many as are held,
	// and CostNothing none.
	Cost int64
	// Receipt is the one that a confirm confirms, which has no other field; empty: it is not a confirm.
	Receipt string
	// IdempotencyKey makes a repetition of this call count once: 1 to 255 bytes of printable
	// ASCII without a blank at either end; for takes and records, and ignored for checks that reserve nothing. Empty:
	// none, unless Options.Retries has the client make one.
	IdempotencyKey string
}

// The service's bounds, as far as they keep one call from spoiling the others of its request.
const (
	maxReserve   = time.Hour
	maxKeyLen    = 255
	maxLoneLen   = 64 << 10 // bytes of a request of one call
	maxBatchLen  = 1 << 20  // bytes of a batch
	maxBatchOps  = 1000
	batchOpening = `{"operations":[`
	batchClosing = `]}`
)

// leavesUnits reports whether c leaves units behind that count, or are held.
func (c *Call) leavesUnits() bool { return c.Op != OpCheck || c.Reserve > 0 }

// repeatable reports whether c may be sent again after a try that left recorded: it surely was not
// done, or is idempotent.
func (c *Call) repeatable(recorded Recorded) bool {
	return recorded == RecordedNo || c.IdempotencyKey != "" || c.Op == OpConfirm
}

// recordedAfter returns whether c's units count after a try that failed with err. sent says that it may have reached
// the service.
func (c *Call) recordedAfter(err error, sent bool) Recorded {
	if c.Op == OpConfirm {
		return stillCounts(err, sent)
	}
	return recordedOf(err, c.leavesUnits(), sent)
}

// Validate returns a *Problem if c could not be sent, or would spoil the calls that share its request. The service
// finds all other mistakes.
func (c *Call) Validate() error {
	switch {
	case c.Op == OpConfirm:
		return c.validateConfirm()
	case c.Op != OpCheck && c.Op != OpRecord && c.Op != OpTake:
		return refuse("op", "It must be one of check, record, take, confirm.")
	case c.Receipt != "":
		return refuse("receipt", "Only a confirm has it.")
	case len(c.Demands) == 0 && c.Reservation == "":
		return refuse("demands", "A call has at least one demand.")
	case c.Reserve < 0 || c.Reserve > maxReserve || c.Reserve%time.Millisecond != 0:
		return refuse("reserve_ms", "It must be whole milliseconds, up to an hour.")
	case c.Reserve > 0 && c.Op != OpCheck:
		return refuse("reserve_ms", "Only a check reserves.")
	case c.Reservation != "" && c.Op != OpRecord:
		return refuse("reservation", "Only a record settles a reservation.")
	case c.Cost < CostNothing || c.Cost != 0 && (c.Reservation == "" || len(c.Demands) > 0):
		return refuse("cost", "It must be 0 or more, beside a reservation and no demands.")
	case !printable(c.IdempotencyKey) || len(c.IdempotencyKey) > maxKeyLen || strings.TrimSpace(c.IdempotencyKey) != c.IdempotencyKey:
		return refuse("idempotency_key", "It must be up to 255 bytes of printable ASCII, without a blank at either end.")
	case !utf8.ValidString(c.Reservation):
		return refuse("reservation", "It must be given back as it was answered.")
	}
	return c.validateDemands()
}

func (c *Call) validateConfirm() error {
	switch {
	case !isReceipt(c.Receipt):
		return refuse("receipt", wantReceipt)
	case len(c.Demands) > 0 || c.Reserve != 0 || c.Reservation != "" || c.Cost != 0 || c.IdempotencyKey != "":
		return refuse("op", "A confirm has a receipt, and nothing else.")
	}
	return nil
}

// wantReceipt is the detail of a refused receipt.
const wantReceipt = "It must be given back as it was answered."

func isReceipt(text string) bool { return text != "" && utf8.ValidString(text) }

func (c *Call) validateDemands() error {
	for i := range c.Demands {
		d, field := &c.Demands[i], ""
		switch {
		case !utf8.ValidString(d.Policy):
			field = "policy"
		case !utf8.ValidString(d.Identifier):
			field = "identifier"
		default:
			continue
		}
		if len(c.Demands) > 1 {
			field = "demands[" + strconv.Itoa(i) + "]." + field
		}
		return refuse(field, "It must be valid UTF-8.")
	}
	return nil
}

func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// appendMembers appends the members of c that a request of its own and a batch's operation
// share, without braces.
func (c *Call) appendMembers(b []byte) []byte {
	start := len(b)
	switch len(c.Demands) {
	case 0:
	case 1:
		b = c.Demands[0].appendMembers(b)
	default:
		b = append(b, `"demands":[`...)
		for i := range c.Demands {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(c.Demands[i].appendMembers(append(b, '{')), '}')
		}
		b = append(b, ']')
	}
	if c.Reserve > 0 {
		b = strconv.AppendInt(append(b, `,"reserve_ms":`...), c.Reserve.Milliseconds(), 10)
	}
	if c.Cost != 0 {
		b = strconv.AppendInt(append(b, `"cost":`...), max(0, c.Cost), 10)
	}
	if c.Reservation != "" {
		if len(b) > start {
			b = append(b, ',')
		}
		b = appendText(append(b, `"reservation":`...), c.Reservation)
	}
	if c.Receipt != "" {
		b = appendText(append(b, `"receipt":`...), c.Receipt)
	}
	return b
}

func (d *Demand) appendMembers(b []byte) []byte {
	b = appendText(append(b, `"policy":`...), d.Policy)
	b = appendText(append(b, `,"identifier":`...), d.Identifier)
	switch {
	case d.Cost == CostNothing:
		b = append(b, `,"cost":0`...)
	case d.Cost != 0:
		b = strconv.AppendInt(append(b, `,"cost":`...), d.Cost, 10)
	}
	if d.Limit != 0 {
		b = strconv.AppendInt(append(b, `,"limit":`...), d.Limit, 10)
	}
	return b
}

// appendOperation appends c as a batch has it. members are its own, as appendMembers made
// them.
func (c *Call) appendOperation(b, members []byte) []byte {
	b = append(b, `{"op":"`...)
	b = append(b, c.Op...)
	b = append(b, `",`...)
	b = append(b, members...)
	if c.IdempotencyKey != "" {
		b = appendText(append(b, `,"idempotency_key":`...), c.IdempotencyKey)
	}
	return append(b, '}')
}

// operationFrame is how long the frame of an operation is at most, beside its members and
// its idempotency key.
const operationFrame = len(`,{"op":"confirm",,"idempotency_key":""}`)

// operationLen bounds how much of a batch c takes: a key may double in escapes.
func (c *Call) operationLen(members []byte) int {
	return operationFrame + len(members) + 2*len(c.IdempotencyKey)
}

const hex = "0123456789abcdef"

// appendText appends text, which is valid UTF-8, as a JSON string.
func appendText(b []byte, text string) []byte {
	b = append(b, '"')
	from := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			b = append(append(b, text[from:i]...), '\\', c)
			from = i + 1
		case c < ' ':
			b = append(append(b, text[from:i]...), '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			from = i + 1
		}
	}
	return append(append(b, text[from:]...), '"')
}
