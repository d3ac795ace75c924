/** Reads the service's answers. It throws {@link Unreadable} for unexpected ones. */
import type {
  Decision,
  DemandDecision,
  Explanation,
  LimitDecision,
  Mode,
  Override,
  Reason,
  Recorded,
} from "./decision.js";
import type { Problem } from "./errors.js";
import { Failure } from "./failure.js";

/** The service's answer to a confirm. */
export const confirmed = "confirmed";
/** The service's answer to one call. */
export type Answer = Decision | typeof confirmed | Failure;

/** A body that is not ratelimitd's. */
export class Unreadable extends Error {}

type Members = Readonly<Record<string, unknown>>;

/** The Retry-After of a 503, because results of a batch have none. */
const batchRetryAfterMs = 1000;

/** Reads the body of an answer to one call. */
export function readAnswer(status: number, body: unknown, retryAfterMs: number, replayed = false): Answer {
  const m = members(body);
  if ((status === 200 && m.allowed === true) || (status === 429 && m.allowed === false)) {
    const decision = decisionOf(m);
    return replayed ? { ...decision, replayed } : decision;
  }
  if (status === 200 && m.allowed === undefined && typeof m.confirmed === "boolean") {
    return confirmed;
  }
  return readProblem(status, body, retryAfterMs);
}

/** Reads the body of an answer without a decision. */
export function readProblem(status: number, body: unknown, retryAfterMs: number): Failure {
  const m = members(body);
  if (status < 400 || status === 429 || integer(m, "status") !== status) {
    throw new Unreadable("its status and its members disagree");
  }
  const field = optionalText(m, "field")?.replace("Idempotency-Key", "idempotency_key");
  const recorded = optionalText(m, "recorded") as Recorded | undefined;
  const problem: Problem = {
    type: text(m, "type"),
    title: text(m, "title"),
    status,
    detail: text(m, "detail"),
    ...(field !== undefined && { field }),
    ...(recorded !== undefined && { recorded }),
  };
  return Failure.ofProblem(problem, retryAfterMs);
}

/** Reads a result of a batch, as if its call had been sent alone. */
export function readResult(result: unknown): Answer {
  const m = members(result);
  const status = integer(m, "status");
  const field = typeof m.field === "string" ? m.field.replace(/^operations\[\d+\]\./, "") : m.field;
  return readAnswer(status, { ...m, field }, status === 503 ? batchRetryAfterMs : 0);
}

/** Reads the body of a batch's answer, with a result for each of `n` operations. */
export function readResults(body: unknown, n: number): Answer[] {
  const results = list(members(body), "results");
  if (results.length !== n) {
    throw new Unreadable("it has not one result for each operation");
  }
  return results.map(readResult);
}

/** Reads a line of a batch's answer: the index of the operation, and its answer. */
export function readLine(line: string): [index: number, answer: Answer] {
  const m = members(parse(line));
  return [integer(m, "index"), readResult(m)];
}

/** Reads the answer to explain. */
export function readExplanation(body: unknown): Explanation {
  const m = members(body);
  text(m, "because");
  list(m, "limits");
  return camelCased(m) as Explanation;
}

/** Reads JSON. */
export function parse(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    throw new Unreadable("its body cannot be read");
  }
}

function decisionOf(m: Members): Decision {
  const receipt = optionalText(m, "receipt");
  const release = optionalText(m, "release");
  const reservation = optionalText(m, "reservation");
  return {
    ...demandDecisionOf(m),
    replayed: m.replayed === true,
    ...(receipt !== undefined && { receipt }),
    ...(release !== undefined && { release }),
    ...(reservation !== undefined && { reservation }),
    ...(m.demands !== undefined && { demands: list(m, "demands").map((d) => demandDecisionOf(members(d))) }),
  };
}

function demandDecisionOf(m: Members): DemandDecision {
  const allowed = flag(m, "allowed");
  const override = optionalText(m, "override") as Override | undefined;
  const reason = optionalText(m, "reason") as Reason | undefined;
  const recorded = optionalText(m, "recorded") as Recorded | undefined;
  return {
    allowed,
    wouldAllow: m.would_allow === undefined ? allowed : flag(m, "would_allow"),
    policy: text(m, "policy"),
    limit: integer(m, "limit"),
    remaining: integer(m, "remaining"),
    used: integer(m, "used"),
    resetAfterMs: integer(m, "reset_after_ms"),
    retryAfterMs: wait(m),
    limits: list(m, "limits").map((l) => limitOf(members(l))),
    mode: text(m, "mode") as Mode,
    blocked: m.blocked === true,
    degraded: flag(m, "degraded"),
    ...(override !== undefined && { override }),
    ...(reason !== undefined && { reason }),
    ...(recorded !== undefined && { recorded }),
    ...(m.settled !== undefined && { settled: integer(m, "settled"), over: integer(m, "over") }),
  };
}

function limitOf(m: Members): LimitDecision {
  return {
    name: text(m, "name"),
    algorithm: text(m, "algorithm"),
    limit: integer(m, "limit"),
    windowMs: integer(m, "window_ms"),
    allowed: flag(m, "allowed"),
    used: integer(m, "used"),
    remaining: integer(m, "remaining"),
    resetAfterMs: integer(m, "reset_after_ms"),
    retryAfterMs: wait(m),
    ...(m.would_deny !== undefined && { wouldDeny: flag(m, "would_deny") }),
  };
}

function members(value: unknown): Members {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Unreadable("it has something else than an object");
  }
  return value as Members;
}

function list(m: Members, name: string): unknown[] {
  const value = m[name];
  if (!Array.isArray(value)) {
    throw new Unreadable(`${name} is not an array`);
  }
  return value;
}

function text(m: Members, name: string): string {
  const value = m[name];
  if (typeof value !== "string") {
    throw new Unreadable(`${name} is not a string`);
  }
  return value;
}

function optionalText(m: Members, name: string): string | undefined {
  return m[name] === undefined ? undefined : text(m, name);
}

function integer(m: Members, name: string): number {
  const value = m[name];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new Unreadable(`${name} is not a whole number`);
  }
  return value;
}

function flag(m: Members, name: string): boolean {
  const value = m[name];
  if (typeof value !== "boolean") {
    throw new Unreadable(`${name} is neither true nor false`);
  }
  return value;
}

function wait(m: Members): number | null {
  return m.retry_after_ms === null ? null : integer(m, "retry_after_ms");
}

function camelCased(value: unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(camelCased);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  const named = ([name, member]: [string, unknown]) => [
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    camelCased(member),
  ];
  return Object.fromEntries(Object.entries(value).map(named));
}
