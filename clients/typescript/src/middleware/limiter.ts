/** Limits requests by ratelimitd's policies, whatever the framework: its adapters do the rest. */
import type { Call, Demand } from "../call.js";
import type { Client } from "../client.js";
import type { Decision } from "../decision.js";
import { CallError, CostTooLargeError, InvalidCallError, UnavailableError } from "../errors.js";
import type { Logger } from "../options.js";
import { Networks } from "./address.js";
import { denied, passed, problem, unavailable, type Verdict } from "./answer.js";
import { type By, identify, type RequestView } from "./identify.js";

/** What is taken for a request. */
export interface Rule<R> {
  readonly policy: string;
  /** Default: that of the options. */
  readonly by?: By<R>;
  /** Units; less than 1: the rule does not limit this request. Default: that of the options. */
  readonly cost?: number | ((request: R) => number);
}

/** A policy, a rule, or several that stand or fall together: one request to ratelimitd takes them all. */
export type Rules<R> = string | Rule<R> | readonly (string | Rule<R>)[];

export interface LimiterOptions<R> {
  /** Addresses and networks of proxies whose X-Forwarded-For is believed. Default: none. */
  readonly trustedProxies?: readonly string[];
  /** Who is counted, for rules without `by`. Default: `ip`. */
  readonly by?: By<R>;
  /** Units, for rules without `cost`. Default: 1 for GET, HEAD and OPTIONS, else 2. */
  readonly cost?: (request: R) => number;
  /** Requests that are not limited. Default: none. */
  readonly skip?: (request: R) => boolean;
  /** Answers 503 where nobody decides. Default: false, the request passes. */
  readonly failClosed?: boolean;
  /** Learns of every call that nobody decided, with its policies and identifiers, and why. It must not throw. */
  readonly onUndecided?: (request: R, call: Call, error: CallError) => void;
  /** A line a second of what `onUndecided` learns. Default: `console`. */
  readonly logger?: Logger;
}

const maxUnits = 1_000_000_000_000;
const readMethods = new Set(["GET", "HEAD", "OPTIONS"]);
const decisions = new WeakMap<object, Decision>();

/** Returns the decision that let a request pass, for a handler that refunds its receipt; `undefined`: nobody decided. */
export function decisionOf(request: object): Decision | undefined {
  return decisions.get(request);
}

export class Limiter<R extends object> {
  readonly #client: Client;
  readonly #viewOf: (request: R) => RequestView;
  readonly #options: LimiterOptions<R>;
  readonly #trusted: Networks;
  #loggedAt = Number.NEGATIVE_INFINITY;

  constructor(client: Client, viewOf: (request: R) => RequestView, options: LimiterOptions<R>) {
    this.#client = client;
    this.#viewOf = viewOf;
    this.#options = options;
    this.#trusted = new Networks(options.trustedProxies ?? []);
  }

  /** Takes what `rules` say for a request. */
  async decide(request: R, rules: Rules<R>): Promise<Verdict> {
    if (this.#options.skip?.(request)) {
      return { headers: {} };
    }
    const demands = await this.#demands(request, listOf(rules));
    if (demands === undefined) {
      const detail = "A proxy in front of this service does not tell which address it asks for.";
      return problem(400, "Bad Request", detail);
    }
    if (demands.length === 0) {
      return { headers: {} };
    }
    const call: Call = { op: "take", demands };
    try {
      return this.#verdictOf(request, call, await this.#client.do(call));
    } catch (error) {
      if (error instanceof CallError) {
        return this.#verdictAfter(request, call, error);
      }
      throw error;
    }
  }

  #verdictOf(request: R, call: Call, decision: Decision): Verdict {
    if (decision.limits.length === 0 && decision.degraded) {
      const message = "the client fails open"; // which it has told
      return this.#undecided(request, call, new UnavailableError("take", decision.recorded, { message }));
    }
    if (!decision.allowed) {
      return denied(decision);
    }
    decisions.set(request, decision);
    return passed(decision);
  }

  /** A request that ratelimitd refuses would get around its limit if it passed. */
  #verdictAfter(request: R, call: Call, error: CallError): Verdict {
    if (error instanceof CostTooLargeError) {
      return problem(413, "Request Entity Too Large", "It costs more than its limit can ever hold.");
    }
    if (error instanceof InvalidCallError && error.problem?.field?.endsWith("identifier")) {
      return problem(400, "Bad Request", error.problem.detail);
    }
    return this.#undecided(request, call, error);
  }

  #undecided(request: R, call: Call, error: CallError): Verdict {
    const { failClosed = false, onUndecided, logger = console } = this.#options;
    onUndecided?.(request, call, error);
    const now = performance.now();
    if (now - this.#loggedAt >= 1000) {
      this.#loggedAt = now;
      const policies = call.demands?.map((d) => d.policy).join(", ");
      const what = failClosed ? "requests are refused" : "requests pass without a limit";
      logger.error(`ratelimitd does not decide: ${what} (${policies}: ${error.message})`);
    }
    return failClosed ? unavailable() : { headers: {} };
  }

  /** Returns the demands for a request, without repetitions; `undefined` where a trusted proxy hides whom it is from. */
  async #demands(request: R, rules: readonly Rule<R>[]): Promise<Demand[] | undefined> {
    const view = this.#viewOf(request);
    const demands: Demand[] = [];
    for (const rule of rules) {
      const identifier = await identify(rule.by ?? this.#options.by ?? "ip", request, view, this.#trusted);
      if (identifier === undefined) {
        return undefined;
      }
      const cost = Math.min(this.#cost(request, view, rule), maxUnits);
      const repeated = demands.some((d) => d.policy === rule.policy && d.identifier === identifier);
      if (cost >= 1 && !repeated) {
        demands.push({ policy: rule.policy, identifier, cost });
      }
    }
    return demands;
  }

  #cost(request: R, { method }: RequestView, { cost = this.#options.cost }: Rule<R>): number {
    if (cost === undefined) {
      return readMethods.has(method) ? 1 : 2;
    }
    return typeof cost === "function" ? cost(request) : cost;
  }
}

function listOf<R>(rules: Rules<R>): Rule<R>[] {
  const list = Array.isArray(rules) ? (rules as readonly (string | Rule<R>)[]) : [rules as string | Rule<R>];
  return list.map((rule) => (typeof rule === "string" ? { policy: rule } : rule));
}
