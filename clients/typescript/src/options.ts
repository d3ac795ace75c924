import type { Call } from "./call.js";
import { safeLogger } from "./callback.js";
import type { CallError } from "./errors.js";
import type { TraceContext } from "./trace.js";
import type { Fetch } from "./transport.js";

/** Where a client writes: `console`, or a logger with these methods. */
export interface Logger {
  info(message: string): void;
  error(message: string): void;
}

export interface ClientOptions {
  /**
   * The timeout of a call with all its attempts: at most 2147483647, some 25 days. Default: 2000, well over the
   * service's own store timeout.
   */
  readonly timeoutMs?: number;
  /**
   * The result of a call while no ratelimitd answers. Default: `fail-closed`, an {@link UnavailableError}. `fail-open`
   * gives a decision that allows and is `degraded`; each is counted ({@link Client.failedOpen}) and reported
   * (`onFailedOpen`), and the log has a line a second. It does not apply to denials, or to errors of a service that
   * answers.
   */
  readonly onUnavailable?: "fail-closed" | "fail-open";
  /** Called with every call that `fail-open` allowed, and the error that it would have had. */
  readonly onFailedOpen?: (call: Call, error: CallError) => void;
  /**
   * The number of further attempts at a call without an answer, if it cannot count twice. Default: 0. If it is not,
   * the client gives takes and records an idempotency key; the service keeps these keys, at some cost.
   */
  readonly retries?: number;
  /** The number of concurrent requests, beyond which calls wait and share one. Default: 2. */
  readonly concurrency?: number;
  /** Sends every call as a request of its own. Default: false. */
  readonly disableBatching?: boolean;
  /** Failures in a row after which calls fail at once until a probe succeeds. Default: 5. */
  readonly maxFailures?: number;
  /** Between that and a probe, and between probes. Default: 1000. */
  readonly probeIntervalMs?: number;
  /**
   * Returns the caller's trace; called for each call. A request that several calls share belongs to the first of
   * their traces that is sampled. Default: requests are in no trace.
   */
  readonly traceContext?: () => TraceContext;
  /** Sent with every request, such as `Authorization`. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Default: the global one. */
  readonly fetch?: Fetch;
  /** A line when the service goes and comes back, and a second while calls fail open. Default: `console`. */
  readonly logger?: Logger;
}

type Hooks = "onFailedOpen" | "traceContext";
export type Settings = Required<Omit<ClientOptions, Hooks>> & Pick<ClientOptions, Hooks>;

/** The longest that timers of JavaScript have: longer ones end at once. */
const maxTimerMs = 2 ** 31 - 1;

/**
 * Returns options with their defaults, or throws an error that names the wrong one. An option that is
 * `undefined` has its default.
 */
export function settingsOf(options: ClientOptions): Settings {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const settings: Settings = {
    timeoutMs: 2000,
    onUnavailable: "fail-closed",
    retries: 0,
    concurrency: 2,
    disableBatching: false,
    maxFailures: 5,
    probeIntervalMs: 1000,
    headers: {},
    fetch: (url, init) => globalThis.fetch(url, init),
    logger: console,
    ...given,
  };
  const wants = (name: keyof ClientOptions, holds: boolean, what: string) => {
    if (!holds) {
      throw new RangeError(`ratelimitd: ${name} is ${String(settings[name])}: it must be ${what}`);
    }
  };
  for (const name of ["timeoutMs", "probeIntervalMs"] as const) {
    const ms = settings[name];
    const holds = typeof ms === "number" && ms > 0 && ms <= maxTimerMs;
    wants(name, holds, `milliseconds, more than 0 and at most ${maxTimerMs}`);
  }
  const atLeast = (name: "retries" | "concurrency" | "maxFailures", least: number) => {
    const holds = Number.isSafeInteger(settings[name]) && settings[name] >= least;
    wants(name, holds, `a whole number, ${least} or more`);
  };
  atLeast("retries", 0);
  atLeast("concurrency", 1);
  atLeast("maxFailures", 1);
  wants("onUnavailable", ["fail-closed", "fail-open"].includes(settings.onUnavailable), "fail-closed or fail-open");
  return { ...settings, logger: safeLogger(settings.logger) };
}
