// The page: it asks how the instance is every two seconds, and shows that.

import { ask, Refusal, token } from "./ask.js";
import { decisionsChart, latencyChart } from "./chart.js";
import { listen, setPolicies } from "./form.js";
import { showShadows } from "./shadow.js";
import { clockTime, count, fill, make, ms, number, percent, rate, shortKey, span } from "./text.js";

const stateEveryMs = 2_000;
const slowEveryMs = 10_000; // history, policies and overrides, which are longer

const by = (id) => document.getElementById(id);
const decisions = decisionsChart(by("decisions-chart"));
const latency = latencyChart(by("latency-chart"));
let answered = null; // when the instance did last
let known = ""; // the policies that are offered

function notice(texts, bad) {
  const shown = by("notices");
  const text = texts.join("\n");
  if (shown.dataset.text === text) return; // what is read out once is enough
  shown.dataset.text = text;
  shown.replaceChildren(...texts.map((t) => make("p", bad ? "notice bad" : "notice", t)));
}

function showInstance(s) {
  const i = s.instance;
  by("instance").textContent = `Shows this instance only: ${i.name} · ${i.version} · up ${span(new Date(s.now) - new Date(i.started))}`;
  document.title = `${rate(s.decisions.denied_per_second)} denied/s · ratelimitd`;
}

const tile = (name, value, note, className) => make("div", "", make("dt", "", name), make("dd", className ?? "", value), make("dd", "note", note));

function showTiles(s) {
  const d = s.decisions;
  const all = d.allowed + d.denied + d.would_deny;
  const perSecond = d.allowed_per_second + d.denied_per_second + d.would_deny_per_second;
  const self = s.members?.list.find((m) => m.self);
  const tiles = [
    tile("Decisions", `${rate(perSecond)}/s`, `${number(all)} last hour`),
    tile("Denied", percent(d.denied, all), `${number(d.denied)} last hour`, d.denied > 0 ? "bad" : ""),
    tile("Latency, p99", ms(s.latency.p99_ms), `p50 ${ms(s.latency.p50_ms)}`),
    s.store.ready && !s.store.breaker_open
      ? tile("Store", "answers", s.instance.store, "good")
      : tile("Store", s.store.ready ? "failing" : "not ready", s.instance.store, "bad"),
    s.clock.within_tolerance
      ? tile("Clock", "in time", s.clock.offset_ms === null ? "one clock" : signed(s.clock.offset_ms), "good")
      : tile("Clock", "off", signed(s.clock.offset_ms), "bad"),
  ];
  if (self && s.members.mode === "owners") tiles.push(tile("Owns", percent(self.share, 1), `one of ${s.members.list.length} members`));
  by("tiles").replaceChildren(...tiles);
}

const signed = (n) => `${n < 0 ? "−" : "+"}${ms(Math.abs(n))}`;

function showPolicies(s) {
  const since = new Date(s.since);
  by("policies-about").textContent = `Decisions of the last hour${new Date(s.now) - since < 3_500_000 ? `, counted since ${clockTime(since)}` : ""}.`
    + (s.left_out > 0 ? ` ${number(s.left_out)} quieter policies are not listed.` : "");
  fill(by("policies"), s.policies.map((p) => [
    make("span", "", p.name, make("span", "mode", p.mode === "enforce" ? "" : ` ${p.mode}`)),
    count(p.allowed), count(p.denied), count(p.would_deny),
    rate(p.allowed_per_second + p.denied_per_second + p.would_deny_per_second),
  ]), "No policy is in force that you may ask about.");
  fill(by("worst"), s.worst.map((w) => [make("code", "", shortKey(w.key)), w.policy, number(w.attempts)]), "Nobody went past a limit.");
}

function showHealth(s) {
  const facts = [
    ["Store", `${s.instance.store}${s.store.breaker_open ? ", given up on for now" : ""}`],
    ["Latency, p50 · p99", `${ms(s.store.latency.p50_ms)} · ${ms(s.store.latency.p99_ms)}`],
    ["Failures, last hour", number(s.store.failures)],
    ["Degraded decisions, last hour", number(s.store.degraded)],
  ];
  if (s.instance.store === "cassandra") facts.push(["Keys that wait to be written", number(s.store.waiting_keys)]);
  if (s.store.unsaved_seconds > 0) facts.push(["Not saved in --data-dir for", span(1000 * s.store.unsaved_seconds)]);
  if (s.clock.offset_ms !== null) {
    facts.push(["Clock, ahead of the store's", signed(s.clock.offset_ms)], ["Clock tolerance", ms(s.instance.clock_tolerance_ms)]);
  }
  facts.push(["Namespace", s.instance.namespace]);
  by("health").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]));
}

function showMembers(s) {
  const m = s.members;
  by("members-table").hidden = !m;
  if (!m) {
    by("members-about").textContent = "This instance is alone: its store is its own, and it decides for all keys.";
    return;
  }
  by("members-about").textContent = `View ${m.view}${m.installed ? "" : ", which members agree on now"}. `
    + (m.mode === "shared" ? "Every member decides for all keys, by writing first." : "Each key has one owner.");
  fill(by("members"), m.list.map((x) => [
    make("span", "", make("code", "", x.id.slice(0, 8)), x.self ? " (this one)" : ""), x.address || "none",
    m.mode === "shared" ? "shared" : percent(x.share, 1),
  ]), "No instance has joined yet.");
}

function showAudit(s) {
  fill(by("audit"), s.audit.slice(0, 20).map((l) => [
    clockTime(new Date(l.time)), l.who ?? "", l.act ?? "",
    l.policy ? make("span", "", `${l.policy} `, make("code", "", l.key)) : l.route ?? "", l.outcome ?? "",
  ]), "Nothing was done or refused since the start.");
}

function showState(s) {
  for (const show of [showInstance, showTiles, showPolicies, showHealth, showMembers, showAudit]) show(s);
  notice(s.warnings, false);
  by("main").hidden = false;
  by("sign-in").hidden = true;
  by("sign-out").hidden = !token.get();
}

async function refreshState() {
  const { content } = await ask("ui/state");
  answered = new Date();
  showState(content);
  return content;
}

async function refreshSlow() {
  const policy = by("chart-policy").value;
  const [history, policies, overrides] = await Promise.all([
    ask(`ui/history?policy=${encodeURIComponent(policy)}`), ask("v1/policies"), ask("v1/overrides"),
  ]);
  decisions.show(history.content);
  latency.show(history.content);
  offer(policies.content.policies);
  await showShadows(policies.content.policies);
  fill(by("overrides"), overrides.content.overrides.map((o) => [
    make("code", "", shortKey(o.key)), o.policy,
    o.kind + (o.limits ? `: ${o.limits.map((l) => `${l.name} ${number(l.limit)}`).join(", ")}` : ""), o.by || "anonymous", `in ${span(o.expires_in_ms)}`,
  ]), "None.");
}

// offer has the policies to choose from, once for each change: a list that is open stays so.
function offer(policies) {
  const now = JSON.stringify(policies);
  if (now === known) return;
  known = now;
  const chart = by("chart-policy");
  const chosen = chart.value;
  chart.replaceChildren(new Option("all policies", ""), ...policies.map((p) => new Option(p.name, p.name)));
  if (policies.some((p) => p.name === chosen)) chart.value = chosen;
  setPolicies(policies);
}

// failed says why nothing new is shown, and asks who it is where that is why.
function failed(err) {
  if (err instanceof Refusal && (err.status === 401 || err.status === 403)) {
    const shown = token.get();
    token.forget();
    by("main").hidden = true;
    by("sign-out").hidden = true;
    if (by("sign-in").hidden) {
      by("sign-in").hidden = false;
      by("sign-in").token.focus();
    }
    notice(shown || err.status === 403 ? [err.message] : [], true);
    return;
  }
  const since = answered ? ` What is shown is of ${clockTime(answered)}.` : "";
  notice([`${err instanceof Refusal ? err.message : "The service does not answer."}${since}`], true);
}

// every calls what refreshes again and again while somebody looks, and returns what does so at once.
function every(milliseconds, refresh) {
  let timer = 0;
  const again = async () => {
    if (!document.hidden && by("sign-in").hidden) await refresh().catch(failed);
    clearTimeout(timer); // of a call that came in between
    timer = setTimeout(again, milliseconds);
  };
  document.addEventListener("visibilitychange", () => document.hidden || again());
  return again;
}

const againState = every(stateEveryMs, refreshState);
const againSlow = every(slowEveryMs, refreshSlow);

by("chart-policy").addEventListener("change", againSlow);
by("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(by("sign-in").token.value);
  by("sign-in").reset();
  by("sign-in").hidden = true;
  againState().then(againSlow);
});
by("sign-out").addEventListener("click", () => {
  token.forget();
  location.reload();
});
listen(async (requestID) => {
  againSlow();
  const state = await refreshState();
  return state.audit.find((line) => line.request_id === requestID);
});

// One after the other: where nobody is known, one refusal is enough.
againState().then(againSlow);
