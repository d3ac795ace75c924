package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/units"
)

// row is a group of panels with a heading.
type row struct {
	title  string
	panels []panel
}

// perSecond returns the rate of a counter, by labels.
func perSecond(counter, selector, by string) string {
	return "sum by (" + by + ") (rate(" + counter + "{" + selector + "}[$__rate_interval]))"
}

// inTime returns the increase of a counter over a time, by policy and country.
func inTime(counter, d string) string {
	return "sum by (policy, country) (increase(" + counter + "{" + policyScope + "}[" + d + "]))"
}

// sentInTime returns the units that were sent and not refunded over a time.
func sentInTime(d string) string {
	return "(" + inTime("ratelimitd_sent_units_total", d) + " - " + inTime("ratelimitd_refunded_units_total", d) + ")"
}

// quantile returns a quantile of a histogram, by labels.
func quantile(q, histogram, selector, by string) string {
	labels := "le"
	if by != "" {
		labels += ", " + by
	}
	return "histogram_quantile(" + q + ", " + perSecond(histogram+"_bucket", selector, labels) + ")"
}

const (
	decisions = "ratelimitd_decisions_total"
	calls     = "ratelimitd_calls_total"
	denied    = `denied|blocked|refused`
)

// empty has the texts of panels without lines, by title, for panels that may be empty while all is well.
var empty = map[string]string{
	"Denials, by policy and outcome":   "No denials are known",
	"How far callers go":               "No window is known to have ended for a caller over its limit",
	"Sent, by policy and country":      "Nothing is known to have been sent",
	"Confirmed, by policy and country": "Nothing is known to have been sent",
	"Unconfirmed in a day":             "Nothing is known to be unconfirmed",
	"Bounds used":                      "No bound is known to be used",
	"Since the last sweep":             "No sweep is known to have ended",
	"Disagreements and caveats":        "None are known",
	"Certificates expire in":           "No certificates are known",
}

// rows are the rows of the dashboard, beginning with an operator's first questions.
var rows = []row{
	{"Decisions", []panel{
		{
			"Decisions", "By outcome. would_deny: allowed in shadow, would be denied if enforced.", units.RequestsPerSecond,
			[]query{{perSecond(decisions, policyScope, "outcome"), "{{outcome}}"}},
		},
		{
			"Denied, by policy", "Share of the decisions under a policy.", units.PercentUnit,
			[]query{{perSecond(decisions, policyScope+`, outcome=~"`+denied+`|degraded_denied"`, "policy") + " / " +
				perSecond(decisions, policyScope, "policy"), "{{policy}}"}},
		},
		{
			"Calls denied, by policy", "Share of the calls under a policy that are denied by any of their policies.", units.PercentUnit,
			[]query{{perSecond(calls, policyScope+`, outcome=~"`+denied+`|degraded_denied"`, "policy") + " / " +
				perSecond(calls, policyScope, "policy"), "{{policy}}"}},
		},
		{
			"Denials, by policy and outcome", "refused: by countries or number_types; would_deny: in shadow.", units.RequestsPerSecond,
			[]query{{perSecond(decisions, policyScope+`, outcome=~"`+denied+`|would_deny"`, "policy, outcome"), "{{policy}}: {{outcome}}"}},
		},
		{
			"Time to answer", "Requests to the API, except those of monitoring.", units.Seconds,
			[]query{
				{quantile("0.5", "ratelimitd_http_request_duration_seconds", scope+`, route=~"/v1/.*"`, ""), "half within"},
				{quantile("0.99", "ratelimitd_http_request_duration_seconds", scope+`, route=~"/v1/.*"`, ""), "99 of 100 within"},
			},
		},
		{
			"Requests, by status", "5xx is Cassandra, a bound, or a defect.", units.RequestsPerSecond,
			[]query{{perSecond("ratelimitd_http_request_duration_seconds_count", scope, "status"), "{{status}}"}},
		},
		{
			"Decided without the store", "By on_store_error, because Cassandra did not answer.", units.RequestsPerSecond,
			[]query{{perSecond("ratelimitd_degraded_decisions_total", policyScope, "policy"), "{{policy}}"}},
		},
	}},
	{"Callers beyond their limits", []panel{
		{
			"Callers over a limit now", "Keys, by policy.", units.Short,
			[]query{{"sum by (policy) (ratelimitd_overshoot_policy_keys{" + policyScope + "})", "{{policy}}"}},
		},
		{
			"Units beyond limits", "Units of attempts beyond a limit.", units.Short,
			[]query{{perSecond("ratelimitd_overshoot_units_total", policyScope, "policy"), "{{policy}}"}},
		},
		{
			"How far callers go", "The demand of the worst of a hundred callers in multiples of its limit, for windows that ended in the last hour.",
			units.Short,
			[]query{{strings.ReplaceAll(
				quantile("0.99", "ratelimitd_overshoot_times_limit", policyScope, "policy"), "$__rate_interval", "1h") + " > 0", "{{policy}}"}},
		},
	}},
	{"Confirmations", []panel{
		{
			"Sent, by policy and country",
			"Units, or their cost, of the last hour, under policies that depend on confirmations, without those refunded.", units.Short,
			[]query{{sentInTime("1h") + " > 0", "{{policy}} {{country}}"}},
		},
		{
			"Confirmed, by policy and country", "Share of the units that were sent in the last hour.", units.PercentUnit,
			[]query{{inTime("ratelimitd_confirmed_units_total", "1h") + " / (" + sentInTime("1h") + " > 0)",
				"{{policy}} {{country}}"}},
		},
		{
			"Unconfirmed in a day", "Units, or their cost, that were sent in the last 24 hours but not confirmed.", units.Short,
			[]query{{"clamp_min(" + sentInTime("24h") + " - " +
				inTime("ratelimitd_confirmed_units_total", "24h") + ", 0) > 0", "{{policy}} {{country}}"}},
		},
		{
			"Bounds used", "Used share of each bound of unconfirmed units.", units.PercentUnit,
			[]query{{"max by (policy, country) (ratelimitd_unconfirmed_used_ratio{" + policyScope + "}) > 0", "{{policy}} {{country}}"}},
		},
	}},
	{"Store", []panel{
		{
			"Time of the store", "99 of 100 requests within.", units.Seconds,
			[]query{{quantile("0.99", "ratelimitd_store_duration_seconds", scope, "op"), "{{op}}"}},
		},
		{
			"Requests to the store", "read and write_read: keys that their owner did not have in memory.", units.RequestsPerSecond,
			[]query{
				{perSecond("ratelimitd_store_duration_seconds_count", scope, "op, outcome"), "{{op}} {{outcome}}"},
				{perSecond("ratelimitd_remembered_denials_total", policyScope, ""), "not asked: denied from memory"},
			},
		},
		{
			"Breaker", "1 while one decision a second probes whether Cassandra is back.", units.Short,
			[]query{{`ratelimitd_breaker_state{` + scope + `, state="open"}`, "{{instance}}"}},
		},
		{
			"Clocks", "How far each instance's clock is ahead of Cassandra's.", units.Seconds,
			[]query{{"ratelimitd_clock_offset_seconds{" + scope + "}", "{{instance}}"}},
		},
		{
			"Written behind", "Under guarantee local: age of the oldest unwritten units.", units.Seconds,
			[]query{{"ratelimitd_local_lag_seconds{" + scope + "}", "{{instance}}"}},
		},
		{
			"Since the last sweep", "Time since any instance finished a sweep of expired counters.", units.Seconds,
			[]query{{"time() - max by (job) (ratelimitd_sweeper_finished_timestamp_seconds{" + scope + "} > 0)", "{{job}}"}},
		},
	}},
	{"Instances that decide together", []panel{
		{
			"Members", "Members of the latest view that each instance knows.", units.Short,
			[]query{{"ratelimitd_members{" + scope + "}", "{{instance}}"}},
		},
		{
			"Owned keys", "Share of all keys that each instance owns.", units.PercentUnit,
			[]query{{"ratelimitd_members_owned_share{" + scope + "}", "{{instance}}"}},
		},
		{
			"Calls handed on", "Calls for keys that another instance owns.", units.RequestsPerSecond,
			[]query{{perSecond("ratelimitd_peer_calls_total", scope, "outcome"), "{{outcome}}"}},
		},
		{
			"Cold reads", "Decisions for which the owner had to read the key first: after a restart, or if --max-keys is too low.",
			units.RequestsPerSecond,
			[]query{{perSecond("ratelimitd_members_cold_reads_total", scope, "instance"), "{{instance}}"}},
		},
		{
			"View", "Its number rises whenever members join or leave.", units.Short,
			[]query{{"ratelimitd_members_view{" + scope + "}", "{{instance}}"}},
		},
		{
			"Members with problems", "A view that is not in force, instances without owners, and instances that were set out.", units.Short,
			[]query{
				{"1 - ratelimitd_members_view_installed{" + scope + "}", "not in force: {{instance}}"},
				{"ratelimitd_members_shared{" + scope + "}", "no owners: {{instance}}"},
				{"increase(ratelimitd_members_set_out_total{" + scope + "}[$__rate_interval])", "set out ({{reason}}): {{instance}}"},
			},
		},
		{
			"Disagreements and caveats", "Settings that differ, and unaccepted reasons why Cassandra may forget writes.", units.Short,
			[]query{
				{"max by (setting) (ratelimitd_settings_disagree{" + scope + "}) > 0", "{{setting}}"},
				{"max by (caveat) (ratelimitd_cluster_caveat{" + scope + `, accepted="false"}) > 0`, "{{caveat}}"},
			},
		},
	}},
	{"Process", []panel{
		{
			"Memory", "Resident.", units.BytesIEC,
			[]query{{"process_resident_memory_bytes{" + scope + "}", "{{instance}}"}},
		},
		{
			"Processor time", "100% is one processor.", units.PercentUnit,
			[]query{{"rate(process_cpu_seconds_total{" + scope + "}[$__rate_interval])", "{{instance}}"}},
		},
		{
			"Connections, and clients turned away", "Turned away by bound.", units.Short,
			[]query{
				{"ratelimitd_http_connections{" + scope + "}", "open: {{instance}}"},
				{perSecond("ratelimitd_http_turned_away_total", scope, "bound"), "turned away a second: {{bound}}"},
			},
		},
		{
			"Builds", "Instances of each version.", units.Short,
			[]query{{"count by (version) (ratelimitd_build_info{" + scope + "})", "{{version}}"}},
		},
		{
			"Files with mistakes", "1 while the previous file stays in force.", units.Short,
			[]query{{"1 - ratelimitd_last_reload_successful{" + scope + "}", "{{file}} {{instance}}"}},
		},
		{
			"Certificates expire in", "", units.Seconds,
			[]query{{"ratelimitd_certificate_expiry_timestamp_seconds{" + scope + "} - time()", "{{certificate}} {{instance}}"}},
		},
	}},
}
