package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// members publishes what this instance knows of those that decide together.
type members struct {
	status func() cluster.Status
	counts func() peer.Counts

	view, listed, installed, shared, unreached, ways, owned, known, setOut, asides, slices, handed *prometheus.Desc
}

// NewMembers returns what publishes what this instance knows of those that decide together, and
// how many calls it handed on: what status and counts say at each scrape.
func NewMembers(status func() cluster.Status, counts func() peer.Counts) prometheus.Collector {
	desc := func(opts prometheus.Opts, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(opts.Name, opts.Help, labels, nil)
	}
	return &members{
		status: status, counts: counts,
		view: desc(prometheus.Opts{
			Name: "ratelimitd_members_view",
			Help: "Number of the latest view that this instance knows.",
		}),
		listed: desc(prometheus.Opts{
			Name: "ratelimitd_members",
			Help: "Instances that decide together, by the latest view.",
		}),
		installed: desc(prometheus.Opts{
			Name: "ratelimitd_members_view_installed",
			Help: "1 if the latest view is in force, 0 while members agree on it.",
		}),
		shared: desc(prometheus.Opts{
			Name: "ratelimitd_members_shared",
			Help: "1 while every instance decides for every key, by writing first; 0 while each key has an owner.",
		}),
		unreached: desc(prometheus.Opts{
			Name: "ratelimitd_members_unreached",
			Help: "Members that this instance does not reach: it can't hand on the calls for their keys.",
		}),
		ways: desc(prometheus.Opts{
			Name: "ratelimitd_members_owners_info",
			Help: "1, with which instances own keys: one, while it has little to do; all; or none, while every instance decides " +
				"for every key. And why not one: processors, memory, late or silent, by what the one owner had too much or too " +
				"little of; or asked, by --owners all. Empty: there is no reason.",
		}, "owners", "reason"),
		owned: desc(prometheus.Opts{
			Name: "ratelimitd_members_owned_share",
			Help: "Share of all keys that this instance owns, 0 to 1.",
		}),
		known: desc(prometheus.Opts{
			Name: "ratelimitd_members_known_share",
			Help: "Share of all keys that this instance owns and need not read when they are new, 0 to 1.",
		}),
		setOut: desc(prometheus.Opts{
			Name: "ratelimitd_members_set_out_total",
			Help: "How often this instance was no longer a member, decided nothing, and joined anew, by reason: silent, " +
				"and others set it out; or unread, its own row could not be read or written.",
		}, "reason"),
		asides: desc(prometheus.Opts{
			Name: "ratelimitd_members_aside_total",
			Help: "How often this instance left the others, as its clock was beyond the tolerance.",
		}),
		slices: desc(prometheus.Opts{
			Name: "ratelimitd_members_handed_over_slices_total",
			Help: "Slices of the keys that this instance owned no longer, and of which it knew all keys, by whether " +
				"the next owner was told them: told; or failed, and the next owner has to find out.",
		}, "outcome"),
		handed: desc(prometheus.Opts{
			Name: "ratelimitd_peer_calls_total",
			Help: "Calls for keys that another instance owns, by what became of them: answered; failed; " +
				"or refused, which nobody decided, and which were tried again.",
		}, "outcome"),
	}
}

// NewRemembered returns what publishes of how many keys this instance remembers what is counted: what now says at
// each scrape.
func NewRemembered(now func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_members_remembered_keys",
		Help: "Keys that this instance owns and of which it remembers all that is counted; --max-keys bounds them.",
	}, func() float64 { return float64(now()) })
}

// NewColdReads returns what publishes how many decisions of this instance had to read their key first: what now says
// at each scrape.
func NewColdReads(now func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "ratelimitd_members_cold_reads_total",
		Help: "Decisions of this instance, as the owner of their key, that had to read it from the store first, " +
			"as nothing of it was in memory.",
	}, func() float64 { return float64(now()) })
}

// Describe sends the descriptions.
func (m *members) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.view, m.listed, m.installed, m.shared, m.unreached, m.ways, m.owned, m.known, m.setOut, m.asides, m.slices, m.handed,
	} {
		to <- d
	}
}

// Collect sends the numbers as they are now.
func (m *members) Collect(to chan<- prometheus.Metric) {
	st, counts := m.status(), m.counts()
	installed, shared := 0.0, 0.0
	if st.Installed {
		installed = 1
	}
	if st.View.Mode == cluster.Shared {
		shared = 1
	}
	for _, gauge := range []struct {
		desc  *prometheus.Desc
		value float64
	}{
		{m.view, float64(st.View.Number)},
		{m.listed, float64(len(st.View.Members))},
		{m.installed, installed},
		{m.shared, shared},
		{m.unreached, float64(len(st.Unreached))},
		{m.owned, float64(st.Owned) / cluster.Slices},
		{m.known, float64(st.Complete) / cluster.Slices},
	} {
		to <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, gauge.value)
	}
	if owners := ownersOf(&st.View); owners != "" {
		to <- prometheus.MustNewConstMetric(m.ways, prometheus.GaugeValue, 1, owners, string(st.View.All))
	}
	for reason, n := range map[string]int64{"silent": st.SetOut - st.Unread, "unread": st.Unread} {
		to <- prometheus.MustNewConstMetric(m.setOut, prometheus.CounterValue, float64(n), reason)
	}
	to <- prometheus.MustNewConstMetric(m.asides, prometheus.CounterValue, float64(st.Asides))
	for outcome, n := range map[string]int64{"told": st.HandedOver, "failed": st.HandedInVain} {
		to <- prometheus.MustNewConstMetric(m.slices, prometheus.CounterValue, float64(n), outcome)
	}
	for outcome, n := range map[string]int64{"answered": counts.Answered, "failed": counts.Failed, "refused": counts.Refused} {
		to <- prometheus.MustNewConstMetric(m.handed, prometheus.CounterValue, float64(n), outcome)
	}
}

// ownersOf returns which members of v own keys; empty: there is no view.
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
