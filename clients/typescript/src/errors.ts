import type { Decision, Recorded } from "./decision.js";
import type { Failure } from "./failure.js";

/** An answer without a decision: a problem of RFC 9457. */
export interface Problem {
  /** A URI, or `about:blank`. */
  readonly type: string;
  readonly title: string;
  /** 0 if the client refused the call itself. */
  readonly status: number;
  readonly detail: string;
  /** The wrong member, such as `cost` or `demands[1].policy`. */
  readonly field?: string;
  /** Whether the units count. */
  readonly recorded?: Recorded;
}

/** The operation that failed: a call's, or one without a decision. */
export type ErrorOp = "check" | "record" | "take" | "batch" | "refund" | "confirm" | "reset" | "explain";

/** Whether units count after an operation that certainly had no effect: those of a refund do. */
export function recordedBefore(op: ErrorOp): Recorded {
  return op === "refund" || op === "confirm" ? "yes" : "no";
}

interface Reason {
  readonly message: string;
  readonly problem?: Problem | undefined;
  readonly cause?: unknown;
}

/** The error of a call without a decision, and whether its units count. No message holds an identifier. */
export class CallError extends Error {
  override readonly name: string = "CallError";
  /** The service's reason, if it gave one. */
  readonly problem: Problem | undefined;
  /** The cause's digest, by which Next recognizes its own errors, as for a page rendered for each request. */
  declare readonly digest?: string;

  constructor(
    readonly op: ErrorOp,
    /** Whether the units count; of a reset, whether it took effect. */
    readonly recorded: Recorded | undefined,
    reason: Reason,
  ) {
    const doubt = recorded === "unknown" ? " (whether it counts is unknown)" : "";
    super(`ratelimitd: ${op}: ${reason.message}${doubt}`, reason.cause === undefined ? {} : { cause: reason.cause });
    this.problem = reason.problem;
    const digest = digestOf(reason.cause);
    if (digest !== undefined) {
      this.digest = digest;
    }
  }
}

/** Returns the digest of an error that a framework throws from `fetch` for itself to catch. */
export function digestOf(error: unknown): string | undefined {
  const digest = (error as { digest?: unknown } | null | undefined)?.digest;
  return typeof digest === "string" ? digest : undefined;
}

/** The service does not decide: it can't be reached, is late or broken, or its store is down. */
export class UnavailableError extends CallError {
  override readonly name: string = "UnavailableError";
}

/** The caller's signal ended the call; `cause` is the signal's reason. */
export class AbortedError extends CallError {
  override readonly name: string = "AbortError";
}

/** The client is closed. */
export class ClosedError extends CallError {
  override readonly name: string = "ClosedError";
}

/** A wait would not end in time: there is no room before, or never, or too many calls wait already. */
export class NoRoomError extends CallError {
  override readonly name: string = "NoRoomError";

  constructor(
    message: string,
    /** The last denial, if there was one. */
    readonly decision: Decision | undefined,
  ) {
    super("take", "no", { message });
  }
}

/** There is nothing to refund or to confirm, or no longer. */
export class NoReceiptError extends CallError {
  override readonly name: string = "NoReceiptError";
}

/** The call is wrong and can't be decided. */
export class InvalidCallError extends CallError {
  override readonly name: string = "InvalidCallError";

  /** Of a call that is not sent. */
  static refused(op: ErrorOp, field: string, detail: string): InvalidCallError {
    const problem = { type: "about:blank", title: "Bad Request", status: 0, field, detail };
    return new InvalidCallError(op, recordedBefore(op), { message: `${field}: ${detail}`, problem });
  }
}

/** No policy of that name is in force. */
export class UnknownPolicyError extends InvalidCallError {
  override readonly name: string = "UnknownPolicyError";
}

/** The cost is more than a limit can ever hold. */
export class CostTooLargeError extends InvalidCallError {
  override readonly name: string = "CostTooLargeError";
}

/** The idempotency key was given to another request. */
export class KeyReusedError extends InvalidCallError {
  override readonly name: string = "KeyReusedError";
}

/** Returns the error of a call with this failure. */
export function errorOf(op: ErrorOp, recorded: Recorded | undefined, failure: Failure): CallError {
  return new (classOf(failure))(op, recorded, failure);
}

function classOf({ kind, problem }: Failure): typeof CallError {
  switch (kind) {
    case "aborted":
      return AbortedError;
    case "closed":
      return ClosedError;
    case "problem":
      return problem === undefined ? UnavailableError : classOfProblem(problem);
    default:
      return UnavailableError;
  }
}

const keyReused = "https://github.com/ratelimitd/ratelimitd#idempotency-key-reused";

function classOfProblem({ status, type, field = "" }: Problem): typeof CallError {
  if (status >= 500) {
    return UnavailableError;
  }
  if (status === 404 && field === "receipt") {
    return NoReceiptError;
  }
  if (status === 404 && field.endsWith("policy")) {
    return UnknownPolicyError;
  }
  if (status === 422 && type === keyReused) {
    return KeyReusedError;
  }
  return status === 422 && field.endsWith("cost") ? CostTooLargeError : InvalidCallError;
}
