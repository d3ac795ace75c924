package store

import "slices"

// MaxApplied is of how many receipts a cell tells that they came back: more changes of one cell than
// there are within a store timeout.
const MaxApplied = 64

// Applied are the receipts that came back last, for a confirmation or a refund that a cell has: so one
// that is sent again finishes what the first began, and does nothing twice.
type Applied struct {
	Last  []Receipt // the newest first
	Since Instant   // of all that were claimed later, those that came back are among Last
}

// Receipt is one entry of a receipt that came back.
type Receipt struct {
	ID EventID
	At Instant // when it did, not before it was claimed
}

// Note notes at now that the receipt of id came back, which was claimed at an instant, and reports whether it
// is the first time, for sure.
func (a *Applied) Note(id EventID, claimed, now Instant) (first bool) {
	if claimed <= a.Since || slices.ContainsFunc(a.Last, func(r Receipt) bool { return r.ID == id }) {
		return false
	}
	a.Last = slices.Insert(slices.Clip(a.Last), 0, Receipt{ID: id, At: max(claimed, now)})
	for len(a.Last) > MaxApplied {
		oldest := len(a.Last) - 1
		a.Since = max(a.Since, a.Last[oldest].At)
		a.Last = a.Last[:oldest]
	}
	return true
}
