/** The answers to limited requests, with the headers of ratelimitd's own answers. */
import type { Decision, LimitDecision } from "../decision.js";

/** The verdict on a request: it passes if there is no answer. */
export interface Verdict {
  readonly headers: Readonly<Record<string, string>>;
  readonly decision?: Decision;
  readonly answer?: { readonly status: number; readonly body: string };
}

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
/** The greatest Integer of a structured field (RFC 9651, section 3.3.1). */
const maxFieldInteger = 999_999_999_999_999;

/** Answers with a problem of RFC 9457. */
export function problem(
  status: number,
  title: string,
  detail: string,
  headers: Readonly<Record<string, string>> = {},
  type = "about:blank",
): Verdict {
  const body = `${JSON.stringify({ type, title, status, detail })}\n`;
  return { headers: { ...headers, "Content-Type": "application/problem+json" }, answer: { status, body } };
}

/** Answers a request that is over its limit. */
export function denied(decision: Decision): Verdict {
  const { retryAfterMs } = decision;
  const wait =
    retryAfterMs === null ? "Waiting would not change that." : `There is room for it in ${seconds(retryAfterMs)} s.`;
  const detail = `This is over its limit. ${wait}`;
  return problem(429, "Quota Exceeded", detail, headersOf(decision), quotaExceeded);
}

/** Answers a request without a decision. */
export function unavailable(): Verdict {
  const detail = "Nobody can tell whether this is within its limit. Try again shortly.";
  return problem(503, "Temporary Reduced Capacity", detail, { "Retry-After": "1" }, reducedCapacity);
}

/** Lets a request pass. */
export function passed(decision: Decision): Verdict {
  return { headers: headersOf(decision), decision };
}

/** Returns the headers of ratelimitd's own answers. A client that fails open has none. */
function headersOf(d: Decision): Record<string, string> {
  if (d.limits.length === 0) {
    return {};
  }
  const enforced = d.limits.filter((l) => l.wouldDeny === undefined);
  const item = (l: LimitDecision, first: string, one: number, second: string, ms: number | null) =>
    `"${l.name}";${first}=${Math.min(one, maxFieldInteger)}${ms === null ? "" : `;${second}=${seconds(ms)}`}`;
  return {
    "X-RateLimit-Limit": String(d.limit),
    "X-RateLimit-Remaining": String(d.remaining),
    "X-RateLimit-Reset": String(seconds(d.resetAfterMs)),
    "RateLimit-Policy": enforced
      .map((l) =>
        l.algorithm === "concurrent" // it has no window
          ? `${item(l, "q", l.limit, "w", null)};qu="concurrent-requests"`
          : item(l, "q", l.limit, "w", l.windowMs),
      )
      .join(", "),
    RateLimit: enforced.map((l) => item(l, "r", l.remaining, "t", moreAfterMs(d, l))).join(", "),
    ...(!d.allowed && d.retryAfterMs !== null && { "Retry-After": String(Math.max(1, seconds(d.retryAfterMs))) }),
  };
}

/**
 * The time until there are more units, as in ratelimitd's own answers; null: no wait helps, or that is later than
 * Retry-After.
 */
function moreAfterMs(d: Decision, l: LimitDecision): number | null {
  const after = l.allowed ? l.resetAfterMs : l.retryAfterMs;
  return after === null || d.allowed || d.retryAfterMs === null || after <= d.retryAfterMs ? after : null;
}

/** In whole seconds, rounded up. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000);
}
