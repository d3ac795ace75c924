import { Breaker } from "./breaker.js";
import { type Call, type Confirm, type Demand, PreparedCall, validateReceipt } from "./call.js";
import { OncePerSecond, runCallback } from "./callback.js";
import type { Decision, DemandDecision, Explanation, Recorded } from "./decision.js";
import { CallError, digestOf, type ErrorOp, errorOf, InvalidCallError, NoRoomError, recordedBefore } from "./errors.js";
import { Expiry } from "./expiry.js";
import { Failure } from "./failure.js";
import { Entry, type Group, Joiner, maxCalls } from "./join.js";
import { Lines } from "./line.js";
import { type ClientOptions, type Settings, settingsOf } from "./options.js";
import { Tries } from "./retry.js";
import { type TraceContext, traceFrom, traceOf } from "./trace.js";
import { type PostOptions, type Reply, Transport } from "./transport.js";
import {
  type Answer,
  confirmed,
  readAnswer,
  readExplanation,
  readLine,
  readProblem,
  readResults,
  Unreadable,
} from "./wire.js";

/** Options of one call. */
export interface CallOptions {
  /** Ends the call. It may count all the same: the error's `recorded` says. */
  readonly signal?: AbortSignal;
}

export interface CountingOptions extends CallOptions {
  /** Makes repetitions of the call count once. Default: none, unless `retries` makes the client choose one. */
  readonly idempotencyKey?: string;
}

/** Options of {@link Client.settle}. */
export interface SettleOptions extends CountingOptions {
  /** Units that each demand of the reservation used: 0 or more. Default: those it holds. */
  readonly cost?: number;
}

export type Demands = Demand | readonly Demand[];

/** The result of one call of a batch. */
export type BatchResult =
  | { readonly decision: Decision; readonly error?: undefined }
  | { readonly decision?: undefined; readonly error: CallError };

/** The result of a confirm of a batch: without an error, it is confirmed. */
export interface ConfirmResult {
  readonly decision?: undefined;
  readonly error?: CallError;
}

/** A client of one ratelimitd, or of several behind one address. Make one for a process. */
export class Client {
  readonly #settings: Settings;
  readonly #transport: Transport;
  readonly #breaker: Breaker;
  readonly #joiner: Joiner;
  readonly #lines = new Lines();
  #failedOpen = 0;
  readonly #failedOpenLines = new OncePerSecond();
  readonly #callbackLines = new OncePerSecond();

  /** Makes a client of the service at `baseURL`, such as `http://127.0.0.1:8080`. It sends nothing yet. */
  constructor(baseURL: string, options: ClientOptions = {}) {
    this.#settings = settingsOf(options);
    const { headers, fetch, logger, maxFailures, probeIntervalMs, concurrency, disableBatching } = this.#settings;
    this.#transport = new Transport(baseURL, headers, fetch);
    this.#breaker = new Breaker({
      maxFailures,
      probeIntervalMs,
      onOpen: () => logger.error("ratelimitd does not answer: calls give what onUnavailable says"),
      onClose: () => logger.info("ratelimitd answers again"),
    });
    this.#joiner = new Joiner((group) => this.#send(group), concurrency, !disableBatching);
  }

  /** Asks whether demands would be allowed now, and records nothing. */
  check(demands: Demands, options?: CallOptions): Promise<Decision> {
    return this.do({ op: "check", demands: listOf(demands) }, options);
  }

  /** Records demands, whatever the limits, and returns what remains. */
  record(demands: Demands, { idempotencyKey, ...options }: CountingOptions = {}): Promise<Decision> {
    return this.do({ op: "record", demands: listOf(demands), ...keyed(idempotencyKey) }, options);
  }

  /** Checks and records demands as one step: all are recorded, or none is. */
  take(demands: Demands, { idempotencyKey, ...options }: CountingOptions = {}): Promise<Decision> {
    return this.do({ op: "take", demands: listOf(demands), ...keyed(idempotencyKey) }, options);
  }

  /**
   * Checks demands and, if they are allowed, holds their units for `holdMs`. A {@link settle} of the decision's
   * `reservation` makes them count, a {@link release} frees them; otherwise they are freed when the hold ends.
   */
  reserve(demands: Demands, holdMs: number, options?: CallOptions): Promise<Decision> {
    return this.do({ op: "check", demands: listOf(demands), reserveMs: holdMs }, options);
  }

  /**
   * Records the units that a {@link reserve} holds, or the `cost` that each of its demands actually had: 0 or more.
   * Unused units are freed, and more count whatever the limit: see `over`. The first settlement is final.
   */
  settle(reservation: string, { idempotencyKey, cost, ...options }: SettleOptions = {}): Promise<Decision> {
    const call = { op: "record", reservation, ...(cost !== undefined && { cost }) } as const;
    return this.do({ ...call, ...keyed(idempotencyKey) }, options);
  }

  /** Frees the units of a {@link reserve} at once. Errors are those of {@link refund}. */
  release(reservation: string, options?: CallOptions): Promise<void> {
    return this.refund(reservation, options);
  }

  /**
   * Takes demands as soon as their limits allow, within a time in milliseconds. It waits as long as a denial says, and
   * a random bit longer, and takes again. Calls for the same policies and identifiers take in turn.
   *
   * It rejects with a {@link NoRoomError} as soon as it is known that there is no room in time or that no wait
   * helps, and if 1000 calls already wait. Other errors are those of {@link take}, and end the wait at once. Don't wait
   * under a policy with `count: all`, where each attempt uses quota.
   */
  async wait(demands: Demands, withinMs: number, options: CallOptions = {}): Promise<Decision> {
    if (!(withinMs > 0 && withinMs <= maxWithinMs)) {
      throw InvalidCallError.refused("take", "withinMs", `It must be more than 0 and at most ${maxWithinMs}.`);
    }
    const list = listOf(demands);
    const key = JSON.stringify(list.map(({ policy, identifier }) => JSON.stringify([policy, identifier])).sort());
    let decision: Decision | undefined;
    const reason = await this.#lines.run(key, withinMs, options.signal, async () => {
      decision = await this.take(list, options);
      return decision.allowed ? { done: true } : { done: false, waitMs: decision.retryAfterMs };
    });
    if (reason === "aborted") {
      throw errorOf(
        "take",
        "no",
        new Failure("aborted", "its caller aborted it", false, { cause: options.signal?.reason }),
      );
    }
    if (reason !== undefined || decision === undefined) {
      throw new NoRoomError(reason === "full" ? "too many wait already" : "there is no room in time", decision);
    }
    return decision;
  }

  /** Makes one call. It rejects with a {@link CallError}. A denial is not an error. */
  async do(call: Call, options: CallOptions = {}): Promise<Decision> {
    if ((call as Call | Confirm).op === "confirm") {
      throw InvalidCallError.refused("confirm", "op", "A confirm has no decision: use confirm, or batch.");
    }
    return (await this.#ask(call, options)) as Decision;
  }

  /**
   * Makes up to 1000 calls as one request, and returns a result for each, in their order. An invalid call does not
   * affect the others. Calls that share a policy and identifier are decided in their order.
   */
  batch(calls: readonly Call[], options?: CallOptions): Promise<BatchResult[]>;
  batch(calls: readonly (Call | Confirm)[], options?: CallOptions): Promise<(BatchResult | ConfirmResult)[]>;
  async batch(calls: readonly (Call | Confirm)[], options: CallOptions = {}): Promise<(BatchResult | ConfirmResult)[]> {
    if (calls.length === 0 || calls.length > maxCalls) {
      throw InvalidCallError.refused("batch", "operations", `A batch has 1 to ${maxCalls} calls.`);
    }
    return this.#withExpiry("batch", options, (expiry) => {
      const trace = this.#trace();
      const entries = calls.map((call) => orError(() => new Entry(this.#prepare(call, trace))));
      const sound = entries.filter((entry) => entry instanceof Entry);
      if (sound.length > 0) {
        this.#joiner.sendTogether(sound);
      }
      return Promise.all(entries.map((entry) => this.#resultOf(entry, expiry)));
    });
  }

  /** Gives back the units of `receipt`, once. It rejects with a `NoReceiptError` if there are none. */
  async refund(receipt: string, options: CallOptions = {}): Promise<void> {
    validateReceipt("refund", receipt);
    // A refund without an answer is not repeated, because a second one would find nothing, like a forged one.
    const reply = await this.#direct("refund", { receipt }, options, false, (failure) => failure.stillCounts);
    expectStatus("refund", reply, 200);
  }

  /**
   * Confirms `receipt`'s units: the code was entered. It counts once, however often it is called. It rejects with a
   * `NoReceiptError` if the receipt was refunded or its window is over. While no ratelimitd answers it rejects,
   * whatever `onUnavailable` says.
   */
  async confirm(receipt: string, options: CallOptions = {}): Promise<void> {
    await this.#ask({ op: "confirm", receipt }, options);
  }

  /** Removes the counts of `identifier` under `policy`, on every instance within a second. */
  async reset(policy: string, identifier: string, options: CallOptions = {}): Promise<void> {
    const reply = await this.#direct("reset", { policy, identifier }, options, true, (failure) =>
      failure.recorded(true),
    );
    expectStatus("reset", reply, 204);
  }

  /** Returns why `identifier` would be allowed or denied now: every limit's state, and all else that decides. */
  async explain(policy: string, identifier: string, options: CallOptions = {}): Promise<Explanation> {
    const reply = await this.#direct("explain", { policy, identifier }, options, true, () => "no");
    return readable("explain", reply, () => readExplanation(reply.body));
  }

  /** The number of calls that `fail-open` has allowed without a decision: a metric that should stay at 0. */
  get failedOpen(): number {
    return this.#failedOpen;
  }

  /** Waits until all earlier calls have answers. Further calls give a `ClosedError`. */
  close(): Promise<void> {
    return this.#joiner.close();
  }

  /** Makes one call; of a confirm, it returns that it is confirmed. */
  #ask(call: Call | Confirm, options: CallOptions): Promise<Decision | typeof confirmed> {
    return this.#withExpiry(call.op, options, (expiry) => {
      const entry = new Entry(this.#prepare(call, this.#trace()));
      this.#joiner.enter(entry);
      return this.#answerOf(entry, expiry);
    });
  }

  #prepare(call: Call | Confirm, trace: TraceContext | undefined): PreparedCall {
    return new PreparedCall(call, this.#settings.retries > 0, trace);
  }

  #trace(): TraceContext | undefined {
    let given: TraceContext | undefined;
    this.#callBack("traceContext", () => {
      given = this.#settings.traceContext?.();
      return given;
    });
    return traceFrom(given);
  }

  /** Runs a callback of the options. Its errors do not affect the call. */
  #callBack(name: keyof ClientOptions, callback: () => unknown): void {
    runCallback(callback, (error) => {
      if (this.#callbackLines.open()) {
        this.#settings.logger.error(`ratelimitd: ${name} threw ${error}`);
      }
    });
  }

  async #withExpiry<T>(op: ErrorOp, { signal }: CallOptions, ask: (expiry: Expiry) => Promise<T>): Promise<T> {
    const expiry = new Expiry(this.#settings.timeoutMs, signal);
    if (signal?.aborted) {
      expiry.stop();
      throw errorOf(op, recordedBefore(op), expiry.failure(false));
    }
    try {
      return await ask(expiry);
    } finally {
      expiry.stop();
    }
  }

  async #resultOf(entry: Entry | CallError, expiry: Expiry): Promise<BatchResult | ConfirmResult> {
    const answer = entry instanceof CallError ? entry : await orError(() => this.#answerOf(entry, expiry));
    if (answer instanceof CallError) {
      return { error: answer };
    }
    return answer === confirmed ? {} : { decision: answer };
  }

  /** Waits for the answer to a call that was sent, and tries again if that may help and cannot count twice. */
  async #answerOf(first: Entry, expiry: Expiry): Promise<Decision | typeof confirmed> {
    const { call } = first;
    const tries = new Tries(this.#settings.retries, expiry);
    let recorded: Recorded | undefined;
    for (let entry = first; ; entry = new Entry(call), this.#joiner.enter(entry)) {
      const leave = () => this.#joiner.leave(entry, (sent) => expiry.failure(sent));
      const answer = await expiry.during(entry.settled, leave);
      if (!(answer instanceof Failure)) {
        return answer;
      }
      const now = call.recordedAfter(answer);
      recorded = recorded === "unknown" ? recorded : now; // an earlier attempt may still count
      if (!call.repeatableAfter(now) || !(await tries.again(answer))) {
        return this.#unanswered(call.call, answer, recorded);
      }
    }
  }

  /** Returns the decision, or throws the error, of a call without an answer. */
  #unanswered(call: Call | Confirm, failure: Failure, recorded: Recorded | undefined): Decision {
    const error = errorOf(call.op, recorded, failure);
    if (this.#settings.onUnavailable === "fail-closed" || call.op === "confirm" || !failure.nobodyDecided) {
      throw error;
    }
    this.#failedOpen++;
    this.#callBack("onFailedOpen", () => this.#settings.onFailedOpen?.(call, error));
    if (this.#failedOpenLines.open()) {
      this.#settings.logger.error(
        `ratelimitd does not decide: calls are allowed without a limit (${this.#failedOpen} so far; ${error.message})`,
      );
    }
    return failedOpenDecision(call, recorded);
  }

  /** Sends a group as one request, and settles all its entries. */
  async #send(group: Group): Promise<void> {
    const { entries, signal } = group;
    const failure =
      entries.length === 1 ? await this.#sendOne(entries, signal) : await this.#sendBatch(entries, signal);
    for (const entry of entries) {
      entry.settle(failure ?? Failure.foreign(200, "it ends too early", 0));
    }
  }

  async #sendOne([entry]: readonly Entry[], signal: AbortSignal): Promise<Failure | undefined> {
    const { call, body, idempotencyKey, trace } = (entry as Entry).call;
    const reply = await this.#exchange(call.op, body, { signal, idempotencyKey, trace });
    return settleBy(reply, ({ status, body, retryAfterMs, replayed }) => {
      settle(entry, readAnswer(status, body, retryAfterMs, replayed));
      return undefined;
    });
  }

  async #sendBatch(entries: readonly Entry[], signal: AbortSignal): Promise<Failure | undefined> {
    const body = `{"operations":[${entries.map((entry) => entry.call.operation).join()}]}`;
    const onLine = (line: string) => {
      const [index, answer] = readLine(line);
      settle(entries[index], answer);
      this.#breaker.answered(performance.now());
    };
    const trace = traceOf(entries.map((entry) => entry.call.trace));
    const reply = await this.#exchange("batch", body, { signal, trace, onLine });
    return settleBy(reply, ({ status, body, retryAfterMs, inLines }) => {
      if (inLines) {
        return undefined;
      }
      if (status !== 200) {
        return readProblem(status, body, retryAfterMs);
      }
      readResults(body, entries.length).forEach((answer, index) => {
        settle(entries[index], answer);
      });
      return undefined;
    });
  }

  /** Posts, unless requests fail at once. */
  async #exchange(route: string, body: string, options: PostOptions): Promise<Reply | Failure> {
    if (!this.#breaker.admit(performance.now())) {
      return new Failure("open", "no answer: it failed several times in a row and is being probed", false);
    }
    const { signal } = options;
    const began = performance.now();
    const onAbort = () => this.#abandon(began);
    signal.addEventListener("abort", onAbort);
    const reply = await this.#transport.post(route, body, options);
    signal.removeEventListener("abort", onAbort);
    if (!(reply instanceof Failure)) {
      this.#breaker.answered(performance.now());
    } else if (digestOf(reply.cause) !== undefined) {
      this.#breaker.abandoned(); // by a framework
    } else if (!signal.aborted) {
      this.#breaker.failed(performance.now());
    }
    return reply;
  }

  /** Tells the breaker about a request that was ended without an answer. */
  #abandon(began: number): void {
    const now = performance.now();
    if (now - began >= this.#settings.timeoutMs / 2) {
      this.#breaker.failed(now);
    } else {
      this.#breaker.abandoned(); // by its callers
    }
  }

  /** Makes a request without calls, and repeats it if it certainly had no effect, or is idempotent. */
  async #direct(
    op: "refund" | "reset" | "explain",
    members: object,
    options: CallOptions,
    idempotent: boolean,
    recordedAfter: (failure: Failure) => Recorded | undefined,
  ): Promise<Reply> {
    return this.#withExpiry(op, options, async (expiry) => {
      const trace = this.#trace();
      const tries = new Tries(this.#settings.retries, expiry);
      let recorded: Recorded | undefined;
      for (;;) {
        const reply = await this.#once(op, JSON.stringify(members), expiry, trace);
        if (!(reply instanceof Failure)) {
          return reply;
        }
        const now = recordedAfter(reply);
        recorded = recorded === "unknown" ? recorded : now; // an earlier attempt may have done it
        if ((!idempotent && now === "unknown") || !(await tries.again(reply))) {
          throw errorOf(op, recorded, reply);
        }
      }
    });
  }

  async #once(op: string, body: string, expiry: Expiry, trace: TraceContext | undefined): Promise<Reply | Failure> {
    const abort = new AbortController();
    const asked = new Promise<Reply | Failure>((resolve) => {
      this.#joiner.bypass(
        async () => resolve(await this.#exchange(op, body, { signal: abort.signal, trace })),
        () => resolve(new Failure("closed", "the client is closed", false)),
      );
    });
    const reply = await expiry.during(asked, () => abort.abort());
    if (reply instanceof Failure) {
      return abort.signal.aborted ? expiry.failure(reply.sent) : reply;
    }
    return reply.status < 400 ? reply : problemOf(reply);
  }
}

/** The longest wait: a year. */
const maxWithinMs = 366 * 24 * 60 * 60 * 1000;

function listOf(demands: Demands): readonly Demand[] {
  return Array.isArray(demands) ? demands : [demands as Demand];
}

function keyed(idempotencyKey: string | undefined): { idempotencyKey?: string } {
  return idempotencyKey === undefined ? {} : { idempotencyKey };
}

/** Returns what `make` returns, or the CallError that it throws. */
function orError<T>(make: () => Promise<T>): Promise<T | CallError>;
function orError<T>(make: () => T): T | CallError;
function orError<T>(make: () => T | Promise<T>): T | CallError | Promise<T | CallError> {
  const caught = (error: unknown) => {
    if (error instanceof CallError) {
      return error;
    }
    throw error;
  };
  try {
    const made = make();
    return made instanceof Promise ? made.catch(caught) : made;
  } catch (error) {
    return caught(error);
  }
}

/** Reads a reply by `read`. Returns the failure if that is not possible. */
function settleBy(
  reply: Reply | Failure,
  read: (reply: Reply) => Failure | undefined | undefined,
): Failure | undefined {
  if (reply instanceof Failure) {
    return reply;
  }
  try {
    return read(reply);
  } catch (error) {
    if (error instanceof Unreadable) {
      return Failure.foreign(reply.status, error.message, reply.retryAfterMs);
    }
    throw error;
  }
}

function problemOf(reply: Reply): Failure {
  return settleBy(reply, ({ status, body, retryAfterMs }) => readProblem(status, body, retryAfterMs)) as Failure;
}

/** Gives an entry its answer, if that is of the right kind. */
function settle(entry: Entry | undefined, answer: Answer): void {
  const isConfirm = entry?.call.call.op === "confirm";
  if (entry === undefined || (!(answer instanceof Failure) && (answer === confirmed) !== isConfirm)) {
    throw new Unreadable("it answers what was not asked");
  }
  entry.settle(answer);
}

function expectStatus(op: "refund" | "reset", reply: Reply, status: number): void {
  if (reply.status !== status) {
    throw errorOf(op, "unknown", Failure.foreign(reply.status, `not ${status}`, 0));
  }
}

function readable<T>(op: "explain", reply: Reply, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Unreadable) {
      throw errorOf(op, "no", Failure.foreign(reply.status, error.message, 0));
    }
    throw error;
  }
}

/** Returns the decision of a client that fails open. */
function failedOpenDecision({ demands = [] }: Call, recorded: Recorded | undefined): Decision {
  const of = (policy: string): DemandDecision => ({
    allowed: true,
    wouldAllow: true,
    policy,
    limit: 0,
    remaining: 0,
    used: 0,
    resetAfterMs: 0,
    retryAfterMs: 0,
    limits: [],
    mode: "enforce",
    blocked: false,
    degraded: true,
    ...(recorded !== undefined && { recorded }),
  });
  return {
    ...of(demands[0]?.policy ?? ""),
    replayed: false,
    ...(demands.length > 1 && { demands: demands.map((d) => of(d.policy)) }),
  };
}
