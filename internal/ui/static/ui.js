// The page: it asks how instances are every two seconds, and shows that.

import { ask, Refusal, token } from "./ask.js";
import { decisionsChart, latencyChart } from "./chart.js";
import { listen, setPolicies } from "./form.js";
import { showShadows } from "./shadow.js";
import { clockTime, count, fill, make, ms, number, percent, rate, shortKey, signed, span } from "./text.js";

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
  const about = `${i.name} · ${i.version} · up ${span(new Date(s.now) - new Date(i.started))}`;
  by("instance").textContent = s.scope === "instances" ? `Shows ${s.instances.length} of ${s.instances.length + s.unanswered.length} instances. Asked: ${about}` : about;
  document.title = `${rate(s.decisions.denied_per_second)} denied/s · ratelimitd`;
  offerInstances(s);
}

// offerInstances has the members to choose from, once for each change: by address, which a member that starts anew keeps.
function offerInstances(s) {
  const members = s.members?.list ?? [];
  const shown = by("shown");
  const now = JSON.stringify(members.map((m) => [m.id, m.address]));
  if (shown.dataset.members === now) return;
  shown.dataset.members = now;
  const chosen = shown.value;
  shown.replaceChildren(new Option("all", ""), ...members.map((m) => new Option(`${m.id.slice(0, 8)}${m.self ? " (asked)" : ""}`, m.address || m.id)));
  shown.value = chosen;
  by("shown-label").hidden = members.length < 2;
}

// query narrows a route to the instance that is chosen.
const query = (route, first) => (by("shown").value ? `${route}${first}instance=${encodeURIComponent(by("shown").value)}` : route);

const tile = (name, value, note, className) => make("div", "", make("dt", "", name), make("dd", className ?? "", value), make("dd", "note", note));

function showTiles(s) {
  const d = s.decisions;
  const all = d.allowed + d.denied + d.would_deny;
  const perSecond = d.allowed_per_second + d.denied_per_second + d.would_deny_per_second;
  const self = s.members?.list.find((m) => m.self);
  const tiles = [
    tile("Decisions", `${rate(perSecond)}/s`, `${number(all)} last hour`),
    tile("Denied", percent(d.denied, all), `${number(d.denied)} last hour${d.denied > 0 ? `: ${because(d.denied_for)}` : ""}`),
    tile("Latency, p99", ms(s.latency.p99_ms), `p50 ${ms(s.latency.p50_ms)}`),
    s.store.ready && !s.store.breaker_open
      ? tile("Store", "answers", s.instance.store, "good")
      : tile("Store", s.store.ready ? "failing" : "not ready", s.instance.store, "bad"),
    s.clock.within_tolerance
      ? tile("Clock", "in time", s.clock.offset_ms === null ? "no other to compare with" : `${signed(s.clock.offset_ms)} from the store's`, "good")
      : tile("Clock", "off", `${signed(s.clock.offset_ms)} from the store's`, "bad"),
  ];
  if (s.scope === "instances") {
    const all = s.instances.length + s.unanswered.length;
    tiles.push(tile("Instances", `${s.instances.length} of ${all}`, "answer", s.unanswered.length > 0 ? "bad" : "good"));
  } else if (self && s.instances[0]?.instance === self.id && s.members.mode !== "shared") tiles.push(tile("Owns", percent(self.share, 1), `of all keys, one of ${s.members.list.length} members`));
  by("tiles").replaceChildren(...tiles);
}

// reasons are those of denials, and how they read.
const reasons = { over_limit: "over limit", blocked: "blocked", refused: "refused", store_error: "store error" };
function because(found) {
  const some = Object.entries(reasons).filter(([name]) => found[name] > 0);
  return some.map(([name, text]) => (some.length > 1 ? `${number(found[name])} ${text}` : text)).join(", ");
}

function showPolicies(s) {
  const since = new Date(s.since);
  by("policies-about").textContent = `Decisions of the last hour, and the calls that asked for each policy${new Date(s.now) - since < 3_500_000 ? `, counted since ${clockTime(since)}` : ""}.`
    + (s.left_out > 0 ? ` ${number(s.left_out)} quieter policies are not listed.` : "");
  fill(by("policies"), s.policies.map((p) => [
    make("span", "", p.name, make("span", "mode", p.mode === "enforce" ? "" : ` ${p.mode}`)),
    count(p.allowed), count(p.denied), percent(p.denied, p.allowed + p.denied + p.would_deny), because(p.denied_for) || "–", count(p.would_deny),
    count(p.calls.allowed + p.calls.denied + p.calls.would_deny), count(p.calls.denied),
    rate(p.allowed_per_second + p.denied_per_second + p.would_deny_per_second),
  ]), "No policy is in force that you may ask about.");
  fill(by("worst"), s.worst.map((w) => [shortKey(w.key), w.policy, number(w.attempts)]), "Nobody went past a limit.");
}

function showConfirmations(s) {
  by("confirmations-card").hidden = s.confirmations.length === 0;
  fill(by("confirmations"), s.confirmations.map((c) => [
    c.policy, c.country || "–", count(c.sent), count(c.confirmed), percent(c.confirmed, c.sent), count(c.unconfirmed),
    c.bound_used === null ? "–" : percent(c.bound_used, 1),
  ]), "Nothing was sent.");
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
    by("members-about").textContent = "This instance runs alone, with a store of its own, and decides for all keys.";
    return;
  }
  by("members-about").textContent = (m.mode === "shared" ? "Each of these instances decides for all keys, by writing first." : "Each key has one owner among these instances, which decides for it.")
    + ` View ${m.view}, ${m.installed ? "on which all agree" : "on which the members are agreeing now"}.`;
  const figures = new Map(s.instances.map((i) => [i.instance, i.decisions]));
  fill(by("members"), m.list.map((x) => {
    const d = figures.get(x.id);
    return [
      make("span", "", make("code", "", x.id.slice(0, 8)), x.self ? " (asked)" : ""), x.address || "none",
      m.mode === "shared" ? "shared" : percent(x.share, 1),
      d ? rate(d.allowed_per_second + d.denied_per_second + d.would_deny_per_second) : "–", d ? count(d.denied) : "–",
    ];
  }), "No instance has joined yet.");
}

function showAudit(s) {
  fill(by("audit"), s.audit.slice(0, 20).map((l) => [
    clockTime(new Date(l.time)), l.who ?? "", l.act ?? "",
    l.policy ? make("span", "", `${l.policy} `, make("code", "", l.key ?? l.prefix ?? "")) : l.route ?? "", l.outcome ?? "",
  ]), "Nothing was done or refused since the start.");
}

function showState(s) {
  for (const show of [showInstance, showTiles, showPolicies, showConfirmations, showHealth, showMembers, showAudit]) show(s);
  notice([...s.unanswered.map((u) => `Without the figures of ${u.instance.slice(0, 8)} at ${u.address || "no address"}: ${u.reason}.`), ...s.warnings], false);
  by("main").hidden = false;
  by("sign-in").hidden = true;
  by("sign-out").hidden = !token.get();
}

async function refreshState() {
  const { content } = await ask(query("ui/state", "?"));
  answered = new Date();
  showState(content);
  return content;
}

async function refreshSlow() {
  const policy = by("chart-policy").value;
  const [history, policies, overrides] = await Promise.all([
    ask(query(`ui/history?policy=${encodeURIComponent(policy)}`, "&")), ask("v1/policies"), ask("v1/overrides"),
  ]);
  decisions.show(history.content);
  latency.show(history.content);
  if (history.content.times.length === 0) setTimeout(againSlow, stateEveryMs); // the instance has just started
  offer(policies.content.policies);
  await showShadows(policies.content.policies);
  fill(by("overrides"), overrides.content.overrides.map((o) => [
    o.prefix ? make("code", "", `${o.prefix}…`) : shortKey(o.key), o.policy,
    o.kind + (o.limits ? `: ${o.limits.map((l) => `${l.name} ${number(l.limit)}`).join(", ")}` : ""), o.by || "anonymous", o.expires_in_ms === null ? "never" : `in ${span(o.expires_in_ms)}`,
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
  const since = answered ? ` The figures are of ${clockTime(answered)}.` : "";
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
by("shown").addEventListener("change", () => againState().then(againSlow));
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
