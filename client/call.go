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
	OpCheck  Op = "check"  // checks whether the call would be allowed now, and records nothing
	OpRecord Op = "record" // records units, whatever the limit
	OpTake   Op = "take"   // checks and records as one step
	// OpConfirm confirms that the units of a receipt were real. It is for a Batch; a single one is Client.Confirm.
	OpConfirm Op = "confirm"
)

// Demand asks for some units of one policy for one identifier.
type Demand struct {
	Policy     string
	Identifier string // the counted identifier: 1 to 1024 bytes of UTF-8; the service stores a hash of it
	Cost       int64  // units; 0 means 1; CostNothing in a settlement: none were used
	// Limit is the number of units that the identifier may have, under a policy that takes its limit from requests; 0:
	// its default. The application must derive it from its own data about the customer, never from an end user's
	// request.
	Limit int64
}

// CostNothing is the cost by which a Demand or a Call that settles a reservation frees all its units.
const CostNothing int64 = -1

// Call is one call with all its options. Check, Record and Take are shorter, and suit most uses.
type Call struct {
	Op Op
	// Demands are decided together: all are recorded or none is. There may be up to 16, none of them twice. A record
	// with a Reservation needs none, and a confirm has none.
	Demands []Demand
	// Reserve is how long an allowed check holds its units, in whole milliseconds, up to an hour; 0: it holds none.
	Reserve time.Duration
	// Reservation is the reservation that a record settles; empty: none.
	Reservation string
	// Cost is the number of units that each demand of Reservation used, in a call without Demands; 0: all held units;
	// CostNothing: none.
	Cost int64
	// Receipt is the receipt that a confirm confirms. Such a call has no other field.
	Receipt string
	// IdempotencyKey makes repetitions of this call count once. It has 1 to 255 bytes of printable ASCII, without a
	// blank at either end. It is for takes and records; checks that reserve nothing ignore it. If it is empty, the
	// client makes one only if Options.Retries is set.
	IdempotencyKey string
}

// Bounds of the service that keep a call from spoiling the others of its request.
const (
	maxReserve   = time.Hour
	maxKeyLen    = 255
	maxLoneLen   = 64 << 10 // bytes of a request with one call
	maxBatchLen  = 1 << 20  // bytes of a batch
	maxBatchOps  = 1000
	batchOpening = `{"operations":[`
	batchClosing = `]}`
)

// leavesUnits reports whether c counts or holds units.
func (c *Call) leavesUnits() bool { return c.Op != OpCheck || c.Reserve > 0 }

// repeatable reports whether c may be sent again after a try that ended with recorded: it was certainly not done, or is
// idempotent.
func (c *Call) repeatable(recorded Recorded) bool {
	return recorded == RecordedNo || c.IdempotencyKey != "" || c.Op == OpConfirm
}

// recordedAfter returns whether c's units count after a try that failed with err. sent says that the call may have
// reached the service.
func (c *Call) recordedAfter(err error, sent bool) Recorded {
	if c.Op == OpConfirm {
		return stillCounts(err, sent)
	}
	return recordedOf(err, c.leavesUnits(), sent)
}

// Validate returns a *Problem if c can't be sent, or would spoil the calls that share its request. The service finds
// all other mistakes.
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

// wantReceipt is the detail of the problem of an invalid receipt.
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

// appendMembers appends the members of c that its own request and an operation of a batch have in common, without
// braces.
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

// appendOperation appends c as an operation of a batch. members are c's, by appendMembers.
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

// operationFrame is the maximum length of an operation without its members and its idempotency key.
const operationFrame = len(`,{"op":"confirm",,"idempotency_key":""}`)

// operationLen returns a bound on the length of c in a batch: escapes may double the length of a key.
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
