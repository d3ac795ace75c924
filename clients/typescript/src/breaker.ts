/**
 * Keeps a service that does not answer from using up the time of every call: after some failures in a row requests
 * fail at once, and one request at a time probes whether the service is back.
 *
 * Time is an argument, in milliseconds of any one clock.
 */
export interface BreakerOptions {
  /** Failures in a row after which requests fail at once. */
  readonly maxFailures: number;
  /** Between probes. */
  readonly probeIntervalMs: number;
  readonly onOpen: () => void;
  readonly onClose: () => void;
}

/**
 * The time without any answer that, beside the failures in a row, must pass before requests fail at once: calls with
 * little time may fail together while others are answered.
 */
const silenceMs = 500;

export class Breaker {
  readonly #options: BreakerOptions;
  #failures = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;
  #probeAt: number | undefined; // of the next probe; undefined: requests are made
  #probing = false;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /** Reports whether a request may be made now. If so, one of `answered`, `failed` and `abandoned` must follow. */
  admit(now: number): boolean {
    if (this.#probeAt === undefined) {
      return true;
    }
    if (this.#probing || now < this.#probeAt) {
      return false;
    }
    this.#probing = true;
    return true;
  }

  /** Notes that the service answered a request, or some calls of one. */
  answered(now: number): void {
    this.#answeredAt = now;
    this.#failures = 0;
    this.#probing = false;
    if (this.#probeAt !== undefined) {
      this.#probeAt = undefined;
      this.#options.onClose();
    }
  }

  /** Notes that the service did not answer a request. */
  failed(now: number): void {
    this.#probing = false;
    this.#failures++;
    if (this.#probeAt !== undefined) {
      this.#probeAt = now + this.#options.probeIntervalMs;
      return;
    }
    if (this.#failures >= this.#options.maxFailures && now - this.#answeredAt >= silenceMs) {
      this.#probeAt = now + this.#options.probeIntervalMs;
      this.#options.onOpen();
    }
  }

  /** Notes that a request ended without information about the service. */
  abandoned(): void {
    this.#probing = false;
  }
}
