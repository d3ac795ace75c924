import { Failure } from "./failure.js";

/** The end of a call with all its attempts: after its time, or by its caller's signal. */
export class Expiry {
  readonly #until: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #signal: AbortSignal | undefined;
  readonly #onEnd = new Set<() => void>();
  readonly #ended = () => {
    for (const callback of [...this.#onEnd]) {
      callback();
    }
  };

  constructor(timeoutMs: number, signal: AbortSignal | undefined) {
    this.#until = performance.now() + timeoutMs;
    this.#timer = setTimeout(this.#ended, timeoutMs);
    this.#signal = signal;
    signal?.addEventListener("abort", this.#ended);
  }

  /** The failure of a call that is over. */
  failure(sent: boolean): Failure {
    if (this.#signal?.aborted) {
      return new Failure("aborted", "its caller aborted it", sent, { cause: this.#signal.reason });
    }
    return new Failure("timeout", "no answer: the time of timeoutMs is over", sent);
  }

  /** Reports whether the call lasts for longer than `ms`. */
  outlasts(ms: number): boolean {
    return this.#signal?.aborted !== true && performance.now() + ms < this.#until;
  }

  /** Waits for `promise`; if the call ends before that, `onEnd` is called and settles it. */
  async during<T>(promise: Promise<T>, onEnd: () => void): Promise<T> {
    this.#onEnd.add(onEnd);
    if (this.#signal?.aborted) {
      onEnd();
    }
    try {
      return await promise;
    } finally {
      this.#onEnd.delete(onEnd);
    }
  }

  /** Waits, at most until the call is over. */
  async pause(ms: number): Promise<void> {
    let wake = () => {};
    let timer: ReturnType<typeof setTimeout> | undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
      timer = setTimeout(resolve, ms);
    });
    await this.during(woken, wake);
    clearTimeout(timer);
  }

  /** Stops the clock. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#ended);
  }
}
