/** Limits requests by ratelimitd's policies, independently of the framework: adapters do the rest. */
import { type Call, type Demand, maxCost } from "../call.js";
import { OncePerSecond, runCallback, safeLogger } from "../callback.js";
import type { Client } from "../client.js";
import type { Decision } from "../decision.js";
import { CallError, CostTooLargeError, InvalidCallError, NoReceiptError, UnavailableError } from "../errors.js";
import type { Logger } from "../options.js";
import { Networks } from "./address.js";
import { denied, passed, problem, unavailable, type Verdict } from "./answer.js";
import { type By, identify, type RequestView } from "./identify.js";

/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>;

/** The units that a request takes. */
export interface Rule<R> {
  readonly policy: string;
  /** Default: that of the options. */
  readonly by?: By<R>;
  /** Whole units; less than 1: the rule does not limit this request. Default: that of the options. */
  readonly cost?: number | ((request: R) => Awaitable<number>);
  /**
   * The limit of the request, under a policy that takes its limit from requests; `undefined`: the policy's default.
   * Take it from the application's own data about its customer, never from the request itself.
   */
  readonly limit?: (request: R) => Awaitable<number | undefined>;
}

/** A policy, a rule, or several that are allowed or denied together: one request to ratelimitd takes them all. */
export type Rules<R> = string | Rule<R> | readonly (string | Rule<R>)[];

export interface LimiterOptions<R> {
  /**
   * Proxies whose X-Forwarded-For is trusted: addresses, networks, and `unix` for those that connect through a unix
   * socket. Default: none.
   */
  readonly trustedProxies?: readonly string[];
  /** The source of the identifier, for rules without `by`. Default: `ip`. */
  readonly by?: By<R>;
  /** Whole units, for rules without `cost`. Default: 1. */
  readonly cost?: number | ((request: R) => Awaitable<number>);
  /** Requests that are not limited. Default: none. */
  readonly skip?: (request: R) => Awaitable<boolean>;
  /** Answers 503 without a decision. Default: false, the request passes. */
  readonly failClosed?: boolean;
  /** Called with every call without a decision, with its policies and identifiers, and the error. */
  readonly onUndecided?: (request: R, call: Call, error: CallError) => void;
  /** Gets at most one line a second about such calls, and one about units that are not released. Default: `console`. */
  readonly logger?: Logger;
}

const decisions = new WeakMap<object, Decision>();

/** Returns the decision that let a request pass, for a handler that refunds its receipt; `undefined`: there is none. */
export function decisionOf(request: object): Decision | undefined {
  return decisions.get(request);
}

export class Limiter<R extends object> {
  readonly #client: Client;
  readonly #viewOf: (request: R) => Awaitable<RequestView>;
  readonly #options: LimiterOptions<R>;
  readonly #trusted: Networks;
  readonly #logger: Logger;
  readonly #undecidedLines = new OncePerSecond();
  readonly #callbackLines = new OncePerSecond();
  readonly #handlerLines = new OncePerSecond();
  readonly #unreleasedLines = new OncePerSecond();

  constructor(client: Client, viewOf: (request: R) => Awaitable<RequestView>, options: LimiterOptions<R>) {
    this.#client = client;
    this.#viewOf = viewOf;
    this.#options = options;
    this.#trusted = new Networks(options.trustedProxies ?? []);
    this.#logger = safeLogger(options.logger ?? console);
    checkBy(options.by);
    checkFixedCost(options.cost);
  }

  /** Returns a function that decides requests by rules. Throws an error if a rule is wrong. */
  by(rules: Rules<R>): (request: R) => Promise<Verdict> {
    const list = listOf(rules);
    return (request) => this.#decide(request, list);
  }

  /**
   * Returns a function that gives back the units that count while a request is under way, once; `undefined`: there are
   * none. It never rejects: units that can't be given back count until their hold ends.
   */
  releaseOf({ decision }: Verdict): (() => Promise<void>) | undefined {
    const receipt = decision?.release;
    if (receipt === undefined) {
      return undefined;
    }
    let released: Promise<void> | undefined;
    return () => {
      released ??= this.#release(receipt);
      return released;
    };
  }

  async #release(receipt: string): Promise<void> {
    try {
      await this.#client.refund(receipt);
    } catch (error) {
      if (!(error instanceof NoReceiptError) && this.#unreleasedLines.open()) {
        const why = error instanceof CallError ? error.message : withoutMessage(error);
        this.#logger.error(`ratelimitd: units under concurrent limits count until their hold ends: ${why}`);
      }
    }
  }

  /** Logs that a handler threw after its request had passed, and that the error was not caught. */
  tellUncaught(error: unknown): void {
    if (this.#handlerLines.open()) {
      this.#logger.error(`ratelimitd: a handler that runs after a limit threw ${withoutMessage(error)}`);
    }
  }

  /** Takes the demands of `rules` for a request. */
  async #decide(request: R, rules: readonly Rule<R>[]): Promise<Verdict> {
    if (await this.#options.skip?.(request)) {
      return { headers: {} };
    }
    const demands = await this.#demands(request, rules);
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
      if (error instanceof CallError && error.digest === undefined) {
        return this.#verdictAfter(request, call, error);
      }
      throw error;
    }
  }

  #verdictOf(request: R, call: Call, decision: Decision): Verdict {
    if (decision.limits.length === 0 && decision.degraded) {
      const message = "the client fails open"; // the client has reported it
      return this.#undecided(request, call, new UnavailableError("take", decision.recorded, { message }));
    }
    if (!decision.allowed) {
      return denied(decision);
    }
    decisions.set(request, decision);
    return passed(decision);
  }

  /** A request that ratelimitd refuses must not pass, because it would evade its limit. */
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
    const { failClosed = false, onUndecided } = this.#options;
    runCallback(
      () => onUndecided?.(request, call, error),
      (name) => {
        if (this.#callbackLines.open()) {
          this.#logger.error(`ratelimitd: onUndecided threw ${name}`);
        }
      },
    );
    if (this.#undecidedLines.open()) {
      const policies = call.demands?.map((d) => d.policy).join(", ");
      const what = failClosed ? "requests are refused" : "requests pass without a limit";
      this.#logger.error(`ratelimitd does not decide: ${what} (${policies}: ${error.message})`);
    }
    return failClosed ? unavailable() : { headers: {} };
  }

  /** Returns the demands for a request, without repetitions; `undefined` if a trusted proxy hides the sender. */
  async #demands(request: R, rules: readonly Rule<R>[]): Promise<Demand[] | undefined> {
    const view = await this.#viewOf(request);
    const demands: Demand[] = [];
    for (const rule of rules) {
      const identifier = await identify(rule.by ?? this.#options.by ?? "ip", request, view, this.#trusted);
      if (identifier === undefined) {
        return undefined;
      }
      const cost = await this.#cost(request, rule);
      const repeated = demands.some((d) => d.policy === rule.policy && d.identifier === identifier);
      if (cost >= 1 && !repeated) {
        demands.push({ policy: rule.policy, identifier, cost, ...(await limitOf(request, rule)) });
      }
    }
    return demands;
  }

  async #cost(request: R, { cost = this.#options.cost ?? 1 }: Rule<R>): Promise<number> {
    return Math.min(checkedCost(typeof cost === "function" ? await cost(request) : cost), maxCost);
  }
}

/** Returns the limit of a request, if it has one. */
async function limitOf<R>(request: R, { limit }: Rule<R>): Promise<{ limit?: number }> {
  const units = await limit?.(request);
  return units === undefined ? {} : { limit: units };
}

/** Throws if `by` is invalid. */
function checkBy(by: By<never> | undefined): void {
  if (by !== undefined && typeof by !== "function" && !/^(ip|api-key|header:[!#$%&'*+.^_`|~\w-]+)$/.test(by)) {
    throw new TypeError(`ratelimitd: by is ${by}: it must be ip, api-key, header:NAME or a function`);
  }
}

/** Throws if the cost of an option is invalid, unless it depends on the request. */
function checkFixedCost(cost: Rule<never>["cost"]): void {
  if (cost !== undefined && typeof cost !== "function") {
    checkedCost(cost);
  }
}

/** Returns a cost, or throws if it is invalid: a request whose cost is not a number would pass without a limit. */
function checkedCost(cost: number): number {
  if (typeof cost === "number" && (cost < 1 || cost === Number.POSITIVE_INFINITY || Number.isInteger(cost))) {
    return cost;
  }
  throw new RangeError(`ratelimitd: cost is ${shown(cost)}: it must be whole units, or less than 1 for no limit`);
}

function listOf<R>(rules: Rules<R>): Rule<R>[] {
  const list = Array.isArray(rules) ? (rules as readonly (string | Rule<R>)[]) : [rules as string | Rule<R>];
  return list.map((rule) => {
    const sound: Rule<R> = typeof rule === "string" ? { policy: rule } : rule;
    if (typeof sound.policy !== "string" || sound.policy === "") {
      throw new TypeError(`ratelimitd: policy is ${shown(sound.policy)}: a rule must name a policy, such as "login"`);
    }
    checkBy(sound.by);
    checkFixedCost(sound.cost);
    if (sound.limit !== undefined && typeof sound.limit !== "function") {
      throw new TypeError(`ratelimitd: limit is ${shown(sound.limit)}: it must be a function of the request`);
    }
    return sound;
  });
}

/** Returns a number, or the type of another value. */
function shown(value: unknown): string {
  return typeof value === "number" ? String(value) : value === "" ? "empty" : `of type ${typeof value}`;
}

/** Returns the class of an error and where it was thrown: its message may contain an identifier. */
function withoutMessage(error: unknown): string {
  if (!(error instanceof Error)) {
    return `a value of type ${typeof error}`;
  }
  const frames = error.stack?.split("\n").filter((line) => /^\s+at /.test(line)) ?? [];
  return [error.name, ...frames].join("\n");
}
