package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// NewMembers returns a collector of the state of the cluster, and of the calls that this instance handed on, as
// returned by status and counts.
func NewMembers(status func() cluster.Status, counts func() peer.Counts) prometheus.Collector {
	s := new(scraped)
	view := s.figure("ratelimitd_members_view", "Number of the latest view of the members that this instance knows.")
	listed := s.figure("ratelimitd_members", "Instances that decide together, according to the latest view.")
	installed := s.figure("ratelimitd_members_view_installed", "1 if the latest view is in force, 0 while members agree on it.")
	shared := s.figure("ratelimitd_members_shared",
		"1 while every instance decides for every key, by writing first; 0 while each key has an owner.")
	unreached := s.figure("ratelimitd_members_unreached",
		"Members that this instance does not reach, so that it can't hand on calls for their keys.")
	ways := s.figure("ratelimitd_members_owners_info",
		"1, labelled by the instances that own keys: one, while the load is small; all; or none, while every instance decides "+
			"for every key. reason, which may be empty, says why there is not one owner: its problem (processors, memory, late or "+
			"silent), or asked, for --owners all.",
		"owners", "reason")
	owned := s.figure("ratelimitd_members_owned_share", "Share of all keys that this instance owns, 0 to 1.")
	known := s.figure("ratelimitd_members_known_share",
		"Share of all keys that this instance owns and knows completely, so that it reads no new ones, 0 to 1.")
	setOut := s.figure("ratelimitd_members_set_out_total",
		"How often this instance was no longer a member, stopped deciding, and joined anew, by reason: silent, if others "+
			"set it out; or unread, if its own row could not be read or written.",
		"reason")
	asides := s.figure("ratelimitd_members_aside_total",
		"How often this instance left the others because its clock was beyond the tolerance.")
	slots := s.figure("ratelimitd_members_handed_over_slots_total",
		"Slots that moved from this instance to another owner, and whose keys it knew completely, by outcome: told, if the "+
			"new owner learned the keys from it; or failed, if the new owner has to find them.",
		"outcome")
	handed := s.figure("ratelimitd_peer_calls_total",
		"Calls that this instance handed on to the owners of their keys, by outcome: answered; failed; "+
			"or refused, if no owner decided the call and it was retried.",
		"outcome")
	s.collect = func(to chan<- prometheus.Metric) {
		st, counts := status(), counts()
		to <- view.is(float64(st.View.Number))
		to <- listed.is(float64(len(st.View.Members)))
		to <- installed.is(oneIf(st.Installed))
		to <- shared.is(oneIf(st.View.Mode == cluster.Shared))
		to <- unreached.is(float64(len(st.Unreached)))
		to <- owned.is(float64(st.Owned) / cluster.Slots)
		to <- known.is(float64(st.Complete) / cluster.Slots)
		if owners := ownersOf(&st.View); owners != "" {
			to <- ways.is(1, owners, string(st.View.All))
		}
		to <- setOut.is(float64(st.SetOut-st.Unread), "silent")
		to <- setOut.is(float64(st.Unread), "unread")
		to <- asides.is(float64(st.Asides))
		to <- slots.is(float64(st.HandedOver), "told")
		to <- slots.is(float64(st.HandedInVain), "failed")
		to <- handed.is(float64(counts.Answered), "answered")
		to <- handed.is(float64(counts.Failed), "failed")
		to <- handed.is(float64(counts.Refused), "refused")
	}
	return s
}

// NewRemembered returns a collector of the number of keys whose counts this instance remembers, as returned by now.
func NewRemembered(now func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_members_remembered_keys",
		Help: "Keys that this instance owns and whose counts it remembers, at most --max-keys.",
	}, func() float64 { return float64(now()) })
}

// NewColdReads returns a collector of the number of decisions that had to read their key first, as returned by now.
func NewColdReads(now func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_members_cold_reads_total",
		Help: "Decisions of this instance as an owner that had to read their key from the store first, " +
			"as its counts were not in memory.",
	}, func() float64 { return float64(now()) })
}

// ownersOf returns which members of v own keys, empty without a view.
func ownersOf(v *cluster.View) string {
	switch {
	case v.Number == 0:
		return ""
	case v.Mode == cluster.Shared:
		return "none"
	case v.Mode == cluster.Sole, len(v.Members) == 1:
		return "one"
	}
	return "all"
}
