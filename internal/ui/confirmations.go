package ui

import (
	"cmp"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// ConfirmationState has the units sent under a policy within a day, and those confirmed.
type ConfirmationState struct {
	Policy      string   `json:"policy"`
	Country     string   `json:"country,omitempty"` // empty: all others
	Sent        float64  `json:"sent"`              // units: codes, or their cost, without refunded ones
	Confirmed   float64  `json:"confirmed"`
	Unconfirmed float64  `json:"unconfirmed"` // of those sent
	BoundUsed   *float64 `json:"bound_used"`  // part of the bound of unconfirmed units, 0 to 1; null: there is no bound, or no recent call
}

const (
	confirmationsListed = 100              // in an answer: those with the most unconfirmed units
	confirmationsKept   = 1000             // of one snapshot
	snapshotEvery       = 30 * time.Minute // so much more than a day may be shown
	snapshotsKept       = int(24 * time.Hour / snapshotEvery)
)

// destination is a policy and a country.
type destination struct{ policy, country string }

// confirmations are the counts of a destination since the start.
type confirmations struct {
	sent, confirmed, refunded float64
	boundUsed                 *float64
}

func (r *reading) addConfirmations(name string, m *dto.Metric) {
	d := destination{label(m, "policy"), label(m, "country")}
	c, known := r.confirmations[d]
	if !known && len(r.confirmations) >= confirmationsKept {
		return
	}
	switch name {
	case "ratelimitd_sent_units_total":
		c.sent = m.GetCounter().GetValue()
	case "ratelimitd_confirmed_units_total":
		c.confirmed = m.GetCounter().GetValue()
	case "ratelimitd_refunded_units_total":
		c.refunded = m.GetCounter().GetValue()
	default:
		used := round(m.GetGauge().GetValue())
		c.boundUsed = &used
	}
	r.confirmations[d] = c
}

// since returns the increase since before. Counters of a policy that was removed and added again start at 0.
func (c confirmations) since(before confirmations) confirmations {
	if c.sent < before.sent || c.confirmed < before.confirmed || c.refunded < before.refunded {
		return c
	}
	c.sent, c.confirmed, c.refunded = c.sent-before.sent, c.confirmed-before.confirmed, c.refunded-before.refunded
	return c
}

// snapshot has the counts at an instant.
type snapshot struct {
	at            time.Time
	confirmations map[destination]confirmations
}

// keepDay keeps a snapshot of now if the latest one is old enough, and drops those of more than a day ago.
func (u *UI) keepDay(now *reading) {
	if n := len(u.day); n > 0 && now.at.Sub(u.day[n-1].at) < snapshotEvery {
		return
	}
	if u.day = append(u.day, snapshot{now.at, now.confirmations}); len(u.day) > snapshotsKept+1 {
		u.day = u.day[1:]
	}
}

// confirmationsOfDay returns the units sent and confirmed within the last day. Sent units can be negative, if other
// instances sent units that were refunded here.
func (u *UI) confirmationsOfDay(now *reading) (all []ConfirmationState) {
	var before map[destination]confirmations
	for i := range u.day { // the latest that is a day old
		if now.at.Sub(u.day[i].at) >= snapshotEvery*time.Duration(snapshotsKept) {
			before = u.day[i].confirmations
		}
	}
	for d, c := range now.confirmations {
		of := c.since(before[d])
		sent := of.sent - of.refunded
		if sent != 0 || of.confirmed > 0 || of.boundUsed != nil && *of.boundUsed > 0 {
			all = append(all, ConfirmationState{d.policy, d.country, sent, of.confirmed, max(0, sent-of.confirmed), of.boundUsed})
		}
	}
	return all
}

// add adds the state of another instance, which may have confirmed units that this one sent. A bound is the same for
// all instances, and its used part at least the largest that one found.
func (c *ConfirmationState) add(more *ConfirmationState) {
	c.Sent, c.Confirmed = c.Sent+more.Sent, c.Confirmed+more.Confirmed
	if c.BoundUsed == nil || more.BoundUsed != nil && *more.BoundUsed > *c.BoundUsed {
		c.BoundUsed = more.BoundUsed
	}
}

// listConfirmations returns those of all with sent units or a used bound, and fills in their unconfirmed units, the
// most first.
func listConfirmations(all []ConfirmationState) []ConfirmationState {
	all = slices.DeleteFunc(all, func(c ConfirmationState) bool { return c.Sent <= 0 && (c.BoundUsed == nil || *c.BoundUsed == 0) })
	for i := range all {
		all[i].Sent = max(0, all[i].Sent)
		all[i].Unconfirmed = max(0, all[i].Sent-all[i].Confirmed)
	}
	slices.SortFunc(all, func(a, b ConfirmationState) int {
		return cmp.Or(cmp.Compare(b.Unconfirmed, a.Unconfirmed), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Country, b.Country))
	})
	return all[:min(len(all), confirmationsListed)]
}
