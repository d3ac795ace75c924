// The form about one identifier: explain, and overrides.

import { ask, Refusal } from "./ask.js";
import { clockTime, fill, headed, lasting, make, number, span } from "./text.js";

const form = document.getElementById("ask");
const answer = document.getElementById("answer");
const limits = document.getElementById("limits");
const dialog = document.getElementById("confirm");
const yes = document.getElementById("confirm-yes");
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

// must reports whether a control has what it needs. If not, the control says what.
function must(control, met, what) {
  control.setCustomValidity(met ? "" : what);
  return met || (control.reportValidity(), false);
}

for (const control of [form.kind, form.lasts]) control.addEventListener("input", () => control.setCustomValidity(""));

// confirmed asks whether something is to be done. It resolves to false where the dialog is closed otherwise.
function confirmed(question, verb) {
  document.getElementById("confirm-question").textContent = question;
  yes.textContent = verb;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

yes.addEventListener("click", () => dialog.close("yes"));
document.getElementById("confirm-no").addEventListener("click", () => dialog.close());

// effects say what an override of a kind does.
const effects = {
  allow: () => "Allow everything",
  block: () => "Deny everything",
  limits: (override) => `Apply other limits (${override.limits.map((l) => `${l.name} ${number(l.limit)}`).join(", ")})`,
};

// acts do what a button says, and return what they show, or null where the user thought better of it.
const acts = {
  async explain(about) {
    const { content, requestID } = await ask("v1/explain", about);
    return { shown: explained(content), requestID };
  },
  async set(about) {
    if (!must(form.kind, form.kind.value !== "", "Choose the effect of the override.")) return null;
    const ends = form.unit.value !== "ever";
    if (!must(form.lasts, !ends || form.lasts.value !== "", "Say how long the override lasts.")) return null;
    const override = { ...about, kind: form.kind.value, expires_in_ms: ends ? form.lasts.valueAsNumber * Number(form.unit.value) : null };
    if (override.kind === "limits") {
      override.limits = [...limits.querySelectorAll("input")].map((input) => ({ name: input.dataset.limit, limit: input.valueAsNumber }));
    }
    const question = `${effects[override.kind](override)} for ${about.identifier} under ${about.policy}, ${lasting(override.expires_in_ms)}?`;
    if (!await confirmed(question, "Set override")) return null;
    const { content, requestID } = await ask("v1/overrides", override);
    return { shown: [make("p", "verdict", `The override is in force ${lasting(content.expires_in_ms)}.`)], requestID };
  },
  async end(about) {
    if (!await confirmed(`End the override for ${about.identifier} under ${about.policy}? The limits of the policy then apply again.`, "End override")) return null;
    const { requestID } = await ask("v1/overrides/delete", about);
    return { shown: [make("p", "verdict", "No override is in force.")], requestID };
  },
};

// explained shows what explain answers.
function explained(x) {
  const table = make("table", "", headed("Limit", "Used", "Of", "Room", "Resets in"), make("tbody"));
  fill(table.tBodies[0], x.limits.map((l) => [
    l.name, number(l.used), number(l.limit), l.allowed ? number(l.remaining) : "none", span(l.reset_after_ms),
  ]), "");
  const shown = [make("p", `verdict ${x.allowed ? "good" : "bad"}`, x.allowed ? "Allowed now" : "Denied now"), make("p", "", x.detail)];
  if (x.allowed && !x.would_allow) shown.push(make("p", "", "Under mode enforce it would be denied."));
  if (x.override) shown.push(make("p", "", `Override: ${x.override.kind}, ${lasting(x.override.expires_in_ms)} from now.`));
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
      const done = await acts[event.submitter?.value ?? "explain"](about);
      if (!done) return;
      const line = await after(done.requestID);
      const recorded = line ? [make("p", "about", `Recorded in the audit log at ${clockTime(new Date(line.time))}: ${line.act}, by ${line.who}.`)] : [];
      answer.replaceChildren(...done.shown, ...recorded);
    } catch (err) {
      answer.replaceChildren(make("p", "verdict bad", err instanceof Refusal ? err.message : "The service does not answer."));
    } finally {
      for (const b of buttons) b.disabled = false;
      event.submitter?.focus();
    }
  });
}
