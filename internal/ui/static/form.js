// The form about one identifier: explain, and overrides.

import { ask, Refusal } from "./ask.js";
import { make, span, number } from "./text.js";

const form = document.getElementById("ask");
const answer = document.getElementById("answer");
const limits = document.getElementById("limits");
let policies = [];

// setPolicies offers policies, as GET /v1/policies lists them.
export function setPolicies(list) {
  policies = list;
  const chosen = form.policy.value;
  form.policy.replaceChildren(...list.map((p) => new Option(p.name, p.name)));
  if (list.some((p) => p.name === chosen)) form.policy.value = chosen;
  showLimits();
}

// showLimits has a field for each limit where an override gives others.
function showLimits() {
  limits.hidden = form.kind.value !== "limits";
  const policy = policies.find((p) => p.name === form.policy.value);
  limits.replaceChildren(...(policy?.limits ?? []).map((l) => {
    const input = make("input");
    Object.assign(input, { type: "number", min: 0, value: l.limit, inputMode: "numeric", required: !limits.hidden });
    input.dataset.limit = l.name;
    return make("label", "", `${l.name} `, input);
  }));
}

form.kind.addEventListener("change", showLimits);
form.policy.addEventListener("change", showLimits);

const acts = {
  async explain(about) {
    const { content, requestID } = await ask("v1/explain", about);
    return { shown: explained(content), requestID };
  },
  async set(about) {
    const override = { ...about, kind: form.kind.value, expires_in_ms: form.lasts.valueAsNumber * Number(form.unit.value) };
    if (override.kind === "limits") {
      override.limits = [...limits.querySelectorAll("input")].map((input) => ({ name: input.dataset.limit, limit: input.valueAsNumber }));
    }
    const { content, requestID } = await ask("v1/overrides", override);
    return { shown: [make("p", "verdict", `The override is in force, and ends in ${span(content.expires_in_ms)}.`)], requestID };
  },
  async end(about) {
    const { requestID } = await ask("v1/overrides/delete", about);
    return { shown: [make("p", "verdict", "No override is in force.")], requestID };
  },
};

// explained shows what explain answers.
function explained(x) {
  const table = make("table", "", make("thead", "", make("tr", "", ...["Limit", "Used", "Of", "Room", "Resets in"].map((title) => {
    const head = make("th", "", title);
    head.scope = "col";
    return head;
  }))));
  table.append(make("tbody", "", ...x.limits.map((l) => make("tr", "", ...[
    l.name, number(l.used), number(l.limit), l.allowed ? number(l.remaining) : "none", span(l.reset_after_ms),
  ].map((cell) => make("td", "", cell))))));
  const shown = [make("p", `verdict ${x.allowed ? "good" : "bad"}`, x.allowed ? "Allowed now" : "Denied now"), make("p", "", x.detail)];
  if (x.allowed && !x.would_allow) shown.push(make("p", "", "Under mode enforce it would be denied."));
  if (x.override) shown.push(make("p", "", `Override: ${x.override.kind}, for ${span(x.override.expires_in_ms)} more.`));
  return x.limits.length > 0 ? [...shown, table] : shown;
}

// listen sends what the form asks for. after returns the line of the audit log that a request made, if it is known.
export function listen(after) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const about = { policy: form.policy.value, identifier: form.identifier.value };
    const buttons = [...form.querySelectorAll("button")];
    for (const b of buttons) b.disabled = true;
    try {
      const { shown, requestID } = await acts[event.submitter?.value ?? "explain"](about);
      const line = await after(requestID);
      if (line) shown.push(make("p", "about", "The audit log has:"), make("code", "line", JSON.stringify(line)));
      answer.replaceChildren(...shown);
    } catch (err) {
      answer.replaceChildren(make("p", "verdict bad", err instanceof Refusal ? err.message : "The service does not answer."));
    } finally {
      for (const b of buttons) b.disabled = false;
      event.submitter?.focus();
    }
  });
}
