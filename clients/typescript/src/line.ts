/** Makes callers wait for room: those of one key take turns, and one of them asks at a time. */

/** The most callers of one key, including the one that asks. */
const maxCallers = 1000;
/** The wait after a denial without one: two calls competed for the last unit. */
const minPauseMs = 10;
/** The largest random wait, which keeps callers of several processes apart. */
const maxJitterMs = 1000;
/** The longest that timers of JavaScript have. */
const maxTimerMs = 2 ** 31 - 1;

/** Why a caller does not wait on: `aborted` is by its own signal. */
export type Reason = "no room" | "full" | "aborted";

/** The result of an ask: the wait before the next one (null: no wait helps), or that it is done. */
export type Asked = { readonly done: true } | { readonly done: false; readonly waitMs: number | null };

class Caller {
  /** Ends the caller's wait, for its turn or in a pause. */
  wake: (reason?: Reason) => void = () => {};

  constructor(
    readonly deadline: number,
    readonly signal: AbortSignal | undefined,
  ) {}

  /** Waits until it is woken, or at most for `ms`; returns the reason not to go on. */
  async sleep(ms: number, reason?: Reason): Promise<Reason | undefined> {
    if (this.signal?.aborted) {
      return "aborted";
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    const abort = () => this.wake("aborted");
    this.signal?.addEventListener("abort", abort);
    const why = await new Promise<Reason | undefined>((resolve) => {
      this.wake = resolve;
      timer = setTimeout(() => resolve(reason), Math.min(ms, maxTimerMs));
    });
    clearTimeout(timer);
    this.signal?.removeEventListener("abort", abort);
    return why;
  }
}

/** The callers of one key: the first one asks. There is no room before `until`, as far as is known. */
interface Line {
  readonly callers: Caller[];
  until: number;
}

export class Lines {
  readonly #lines = new Map<string, Line>();

  /**
   * Calls `ask`, in turn with the callers of `key`, until it is done. Otherwise it returns the reason: "no room" as
   * soon as it is known that there is none within the caller's time.
   */
  async run(
    key: string,
    withinMs: number,
    signal: AbortSignal | undefined,
    ask: () => Promise<Asked>,
  ): Promise<Reason | undefined> {
    const caller = new Caller(performance.now() + withinMs, signal);
    const line = this.#lines.get(key) ?? { callers: [], until: 0 };
    if (signal?.aborted) {
      return "aborted";
    }
    if (caller.deadline < line.until) {
      return "no room";
    }
    if (line.callers.length >= maxCallers) {
      return "full";
    }
    this.#lines.set(key, line);
    line.callers.push(caller);
    try {
      const first = line.callers.length === 1;
      const reason = first ? undefined : await caller.sleep(withinMs, "no room");
      return reason ?? (await this.#asks(line, caller, ask));
    } finally {
      this.#leave(key, line, caller);
    }
  }

  async #asks(line: Line, caller: Caller, ask: () => Promise<Asked>): Promise<Reason | undefined> {
    for (;;) {
      const asked = await ask();
      if (asked.done) {
        return undefined;
      }
      if (asked.waitMs === null) {
        return "no room";
      }
      const waitMs = Math.max(asked.waitMs, minPauseMs);
      const until = performance.now() + waitMs;
      if (until > caller.deadline) {
        return "no room";
      }
      line.until = until;
      for (const other of line.callers.slice(1)) {
        if (other.deadline < until) {
          other.wake("no room");
        }
      }
      const jitterMs = Math.min(waitMs / 10, maxJitterMs, (caller.deadline - until) / 2);
      const reason = await caller.sleep(waitMs + Math.random() * jitterMs);
      if (reason !== undefined) {
        return reason;
      }
    }
  }

  #leave(key: string, line: Line, caller: Caller): void {
    const first = line.callers[0] === caller;
    line.callers.splice(line.callers.indexOf(caller), 1);
    if (line.callers.length === 0) {
      this.#lines.delete(key);
    } else if (first) {
      line.until = 0;
      line.callers[0]?.wake();
    }
  }
}
