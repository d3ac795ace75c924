// What shadows would have denied, on all instances, by the hour.

import { ask } from "./ask.js";
import { count, fill, hoursMinutes, make, number, percent } from "./text.js";

const most = 20; // policies that are asked for
const hours = 24;
const bars = "▁▂▃▄▅▆▇█";

const by = (id) => document.getElementById(id);
const isShadow = (p) => p.mode === "shadow" || p.mode === "enforce" && p.limits.some((l) => l.shadow);

// showShadows asks for each of policies that has shadows, and shows what these would have denied.
export async function showShadows(policies) {
  const all = await Promise.all(policies.filter(isShadow).slice(0, most).map((p) => ask(`v1/policies/${encodeURIComponent(p.name)}/shadow`)));
  const answers = all.map((a) => a.content);
  fill(by("shadow"), answers.flatMap((a) => a.limits.map((l) => [
    a.policy, l.name, count(a.calls), count(l.would_deny), percent(l.would_deny, a.calls), l.callers === null ? "?" : count(l.callers), overTime(l.hours),
  ])), "Neither a policy nor a limit is in shadow.");
  const missing = new Map(answers.flatMap((a) => a.unanswered.map((u) => [u.instance, `${u.instance.slice(0, 8)} at ${u.address}: ${u.reason}`])));
  const unjudged = answers.filter((a) => a.confirmed === 0 && a.calls > 0).map((a) => a.policy);
  by("shadow-missing").textContent = [
    unjudged.length > 0 ? `Not judged: no units were confirmed, and limits of ${unjudged.join(", ")} depend on confirmations.` : "",
    missing.size > 0 ? `Without the calls of ${[...missing.values()].join("; ")}.` : "",
  ].join(" ");
}

// overTime draws what would have been denied in each of the last hours, the latest last, and says it.
function overTime(spans) {
  const now = Math.floor(Date.now() / 3_600_000);
  const found = new Map(spans.map((s) => [Math.floor(new Date(s.start) / 3_600_000), s]));
  const top = Math.max(1, ...spans.map((s) => s.would_deny));
  let drawn = "";
  const said = [];
  for (let hour = now - hours + 1; hour <= now; hour++) {
    const s = found.get(hour);
    drawn += s?.would_deny > 0 ? bars[Math.ceil((bars.length * s.would_deny) / top) - 1] : "·";
    if (s?.would_deny > 0) said.push(`${hoursMinutes(new Date(s.start))} ${number(s.would_deny)} of ${number(s.calls)} calls, ${number(s.callers ?? 0)} callers`);
  }
  const spark = make("span", "spark", drawn);
  spark.role = "img";
  spark.ariaLabel = spark.title = said.join("\n") || "none in 24 hours";
  return spark;
}
