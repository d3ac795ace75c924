import type { Expiry } from "./expiry.js";
import type { Failure } from "./failure.js";

/** After this time a restarted instance is back, or another one has its address. */
const firstWaitMs = 50;
const maxWaitMs = 1000;

/** Counts the attempts at a call. */
export class Tries {
  readonly #expiry: Expiry;
  #left: number;
  #waitMs = firstWaitMs;

  constructor(retries: number, expiry: Expiry) {
    this.#left = retries;
    this.#expiry = expiry;
  }

  /** Waits until the next attempt; false if there is none, or the failure is permanent. */
  async again(failure: Failure): Promise<boolean> {
    const waitMs = this.#waitAfter(failure);
    if (this.#left === 0 || waitMs === undefined || !this.#expiry.outlasts(waitMs)) {
      return false;
    }
    this.#left--;
    this.#waitMs = Math.min(2 * this.#waitMs, maxWaitMs);
    await this.#expiry.pause(waitMs);
    return this.#expiry.outlasts(0);
  }

  /**
   * As long as the service says, and a random bit longer, so that callers that failed together do not retry together.
   */
  #waitAfter({ kind, problem, retryAfterMs }: Failure): number | undefined {
    if (kind === "connection") {
      return between(this.#waitMs / 2, this.#waitMs);
    }
    const passes = problem?.status === 503 || kind === "foreign";
    return passes && retryAfterMs > 0 ? between(retryAfterMs, 1.5 * retryAfterMs) : undefined;
  }
}

function between(least: number, most: number): number {
  return least + Math.random() * (most - least);
}
