package count

// Op is what a request asks for.
type Op string

// The operations on a demand.
const (
	OpCheck  Op = "check"  // would it be allowed; records nothing
	OpRecord Op = "record" // count it whatever the limit
	OpTake   Op = "take"   // count it if it is allowed

	OpReserve Op = "reserve" // hold it if it is allowed; a denial is never counted
)

// MayDeny reports whether o counts only what is allowed.
func (o Op) MayDeny() bool { return o == OpTake || o == OpReserve }
