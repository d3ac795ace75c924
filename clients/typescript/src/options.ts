import type { Call } from "./call.js";
import type { CallError } from "./errors.js";
import type { TraceContext } from "./trace.js";
import type { Fetch } from "./transport.js";

/** Where a client writes: `console`, or a logger with these methods. */
export interface Logger {
  info(message: string): void;
  error(message: string): void;
}

export interface ClientOptions {
  /** Of a call, with all its tries. Default: 2000, well over the service's own store timeout. */
  readonly timeoutMs?: number;
  /**
   * What a call gives while no ratelimitd answers. Default: `fail-closed`, an {@link UnavailableError}. `fail-open` gives
   * a decision that allows and is `degraded`; each is counted ({@link Client.failedOpen}) and told (`onFailedOpen`), and
   * the log has a line a second. What a service that answers denies, or cannot decide, stands.
   */
  readonly onUnavailable?: "fail-closed" | "fail-open";
  /** Learns of every call that `fail-open` allowed, and of the error that it would have had. It must not throw. */
  readonly onFailedOpen?: (call: Call, error: CallError) => void;
  /**
   * How often a call that was not answered is tried again, where that cannot count twice. Default: 0. If it is not, the
   * client gives takes and records an idempotency key; the service keeps these keys, at some cost.
   */
  readonly retries?: number;
  /** How many requests go at the same time before further calls wait and share one. Default: 2. */
  readonly concurrency?: number;
  /** Sends every call as a request of its own. Default: false. */
  readonly disableBatching?: boolean;
  /** Failures in a row after which calls fail at once until a probe succeeds. Default: 5. */
  readonly maxFailures?: number;
  /** Between that and a probe, and between probes. Default: 1000. */
  readonly probeIntervalMs?: number;
  /**
   * Gives the trace that a caller is in: it is called for each call, and must not throw. A request that several calls share
   * is part of the first of their traces that is sampled. Default: requests are in no trace.
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

/** Returns options with their defaults, or throws what is wrong with them. */
export function settingsOf(options: ClientOptions): Settings {
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
    ...options,
  };
  const wants = (name: keyof ClientOptions, holds: boolean, what: string) => {
    if (!holds) {
      throw new RangeError(`ratelimitd: ${name} is ${String(settings[name])}: it must be ${what}`);
    }
  };
  wants("timeoutMs", settings.timeoutMs > 0, "more than 0 milliseconds");
  wants("probeIntervalMs", settings.probeIntervalMs > 0, "more than 0 milliseconds");
  wants("retries", Number.isInteger(settings.retries) && settings.retries >= 0, "0 or more");
  wants("concurrency", Number.isInteger(settings.concurrency) && settings.concurrency >= 1, "1 or more");
  wants("maxFailures", Number.isInteger(settings.maxFailures) && settings.maxFailures >= 1, "1 or more");
  wants("onUnavailable", ["fail-closed", "fail-open"].includes(settings.onUnavailable), "fail-closed or fail-open");
  return settings;
}
