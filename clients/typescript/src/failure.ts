import type { Recorded } from "./decision.js";
import { digestOf, type Problem } from "./errors.js";

/**
 * Why an attempt has no decision. `foreign` is an answer that is not ratelimitd's; `open` means that requests fail at
 * once.
 */
export type FailureKind = "problem" | "foreign" | "connection" | "timeout" | "open" | "full" | "aborted" | "closed";

/** An attempt without a decision. It is a value; the call decides what to do with it. */
export class Failure {
  readonly problem: Problem | undefined;
  /** When to try again, in milliseconds; 0: the service did not say. */
  readonly retryAfterMs: number;
  readonly cause: unknown;

  constructor(
    readonly kind: FailureKind,
    readonly message: string,
    /** Whether it may have reached the service. */
    readonly sent: boolean,
    more: { problem?: Problem; retryAfterMs?: number; cause?: unknown } = {},
  ) {
    this.problem = more.problem;
    this.retryAfterMs = more.retryAfterMs ?? 0;
    this.cause = more.cause;
  }

  static ofProblem(problem: Problem, retryAfterMs: number): Failure {
    const where = problem.field === undefined ? "" : `${problem.field}: `;
    return new Failure("problem", `status ${problem.status}: ${where}${problem.detail}`, true, {
      problem,
      retryAfterMs,
    });
  }

  static foreign(status: number, why: string, retryAfterMs: number): Failure {
    const more = { retryAfterMs: status === 503 ? retryAfterMs : 0 };
    return new Failure("foreign", `the answer is not ratelimitd's: status ${status}, ${why}`, true, more);
  }

  /** Whether the service answered, if only that it cannot decide. */
  get answered(): boolean {
    return this.kind === "problem";
  }

  /**
   * Whether there is no decision at all: a 503 of ratelimitd itself is a policy's on_store_error, and an error that a
   * framework throws for itself is not the service's.
   */
  get nobodyDecided(): boolean {
    if (this.problem !== undefined) {
      return this.problem.status >= 500 && this.problem.status !== 503;
    }
    return this.kind !== "aborted" && this.kind !== "closed" && digestOf(this.cause) === undefined;
  }

  /**
   * Whether units still count after a refund or a confirm with this failure; `undefined`: the receipt's units are not
   * known.
   */
  get stillCounts(): Recorded | undefined {
    if (this.problem === undefined) {
      return this.sent ? "unknown" : "yes";
    }
    return this.problem.status < 500 ? undefined : this.recorded(true);
  }

  /** Whether units count after it. */
  recorded(leavesUnits: boolean): Recorded {
    if (!leavesUnits || !this.sent) {
      return "no";
    }
    if (this.problem === undefined) {
      return "unknown";
    }
    return this.problem.recorded ?? (this.problem.status < 500 ? "no" : "unknown");
  }
}
