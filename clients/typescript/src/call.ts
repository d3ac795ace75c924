import type { Recorded } from "./decision.js";
import { InvalidCallError } from "./errors.js";
import type { Failure } from "./failure.js";
import type { TraceContext } from "./trace.js";

/** What a call does: `take` checks and records as one step. */
export type Op = "check" | "record" | "take";

/** Some units of one policy for one identifier. */
export interface Demand {
  readonly policy: string;
  /** The identifier that is counted: 1 to 1024 bytes of UTF-8. The service stores a hash of it. */
  readonly identifier: string;
  /** Units; 1 by default. */
  readonly cost?: number;
  /**
   * The identifier's limit in units, under a policy that takes its limit from requests. Default: the policy's. Take it
   * from the application's own data about its customer, never from an end user's request.
   */
  readonly limit?: number;
}

/** One call with all its options. */
export interface Call {
  readonly op: Op;
  /** Up to 16 demands, none twice. They are allowed or denied together: all are recorded or none is. */
  readonly demands?: readonly Demand[];
  /** Makes a check that allows hold the units for this time: whole milliseconds, up to an hour. */
  readonly reserveMs?: number;
  /** The reservation from a check's answer, for a record to settle. */
  readonly reservation?: string;
  /** Units that each demand of a `reservation` used, in a call without `demands`: 0 or more; absent: those it holds. */
  readonly cost?: number;
  /** Makes a repetition of a take or record count once: 1 to 255 bytes of printable ASCII, no blank at either end. */
  readonly idempotencyKey?: string;
}

/** A call of a batch that confirms a receipt's units, as `Client.confirm` does. */
export interface Confirm {
  readonly op: "confirm";
  readonly receipt: string;
}

const maxReserveMs = 3_600_000;
/** The most units of a call. */
export const maxCost = 1_000_000_000_000;
const keyPattern = /^[!-~]([ -~]{0,253}[!-~])?$/;
const loneSurrogate = /\p{Surrogate}/u; // which UTF-8 cannot have
/** The most bytes, by JSON escapes and UTF-8, for a UTF-16 unit that JSON.stringify returns. */
const bytesPerUnit = 3;

/** A call in the form in which it is sent. */
export class PreparedCall {
  readonly idempotencyKey: string | undefined;
  /** Whether the call counts or holds units. */
  readonly leavesUnits: boolean;
  /** The body of a request of its own. */
  readonly body: string;
  /** The operation in a batch. */
  readonly operation: string;
  /** Bytes of `operation`, at most. */
  readonly size: number;
  /** The policies and identifiers of its demands. */
  readonly keys: readonly string[];

  /**
   * Throws an {@link InvalidCallError} if the call could not be sent, or would spoil the other calls of its request.
   */
  constructor(
    readonly call: Call | Confirm,
    makeKey: boolean,
    /** The caller's trace. */
    readonly trace: TraceContext | undefined,
  ) {
    validate(call);
    this.leavesUnits = call.op !== "check" || call.reserveMs !== undefined;
    this.idempotencyKey = keyOf(call, makeKey);
    const members = membersOf(call);
    this.body = JSON.stringify(members);
    this.operation = JSON.stringify({ op: call.op, ...members, idempotency_key: this.idempotencyKey });
    this.size = this.operation.length * bytesPerUnit;
    this.keys = call.op === "confirm" ? [] : (call.demands ?? []).map((d) => `${d.policy}\n${d.identifier}`);
  }

  /** Whether units count after an attempt with this failure. */
  recordedAfter(failure: Failure): Recorded | undefined {
    return this.call.op === "confirm" ? failure.stillCounts : failure.recorded(this.leavesUnits);
  }

  /** Reports whether the call may be sent again after an attempt: it certainly had no effect, or is idempotent. */
  repeatableAfter(recorded: Recorded | undefined): boolean {
    return recorded === "no" || this.idempotencyKey !== undefined || this.call.op === "confirm";
  }
}

function membersOf(call: Call | Confirm): object {
  if (call.op === "confirm") {
    return { receipt: call.receipt };
  }
  const demands = (call.demands ?? []).map(({ policy, identifier, cost, limit }) => ({
    policy,
    identifier,
    cost,
    limit,
  }));
  return {
    ...(demands.length === 1 ? demands[0] : demands.length > 1 ? { demands } : {}),
    ...(call.cost !== undefined && { cost: call.cost }),
    reserve_ms: call.reserveMs,
    reservation: call.reservation,
  };
}

function keyOf(call: Call | Confirm, makeKey: boolean): string | undefined {
  if (call.op === "confirm") {
    return undefined; // it counts once anyway
  }
  if (call.op === "check" && call.reserveMs === undefined) {
    return undefined; // it counts nothing, and a batch would refuse it
  }
  return call.idempotencyKey ?? (makeKey && call.op !== "check" ? crypto.randomUUID() : undefined);
}

/** Throws if `receipt` can't be one of the service. */
export function validateReceipt(op: "refund" | "confirm", receipt: string): void {
  if (receipt === "" || loneSurrogate.test(receipt)) {
    throw InvalidCallError.refused(op, "receipt", "It must be given back as it was answered.");
  }
}

function validate(call: Call | Confirm): void {
  if (call.op === "confirm") {
    validateReceipt("confirm", call.receipt);
    return;
  }
  const refuse = (field: string, detail: string) => InvalidCallError.refused(call.op, field, detail);
  const { demands = [], reserveMs, reservation, cost, idempotencyKey } = call;
  if (!["check", "record", "take"].includes(call.op)) {
    throw refuse("op", "It must be one of check, record, take, confirm.");
  }
  if (demands.length === 0 && reservation === undefined) {
    throw refuse("demands", "A call has at least one demand.");
  }
  if (reserveMs !== undefined && !(Number.isInteger(reserveMs) && reserveMs >= 1 && reserveMs <= maxReserveMs)) {
    throw refuse("reserve_ms", "It must be whole milliseconds, from 1 to an hour.");
  }
  if (reserveMs !== undefined && call.op !== "check") {
    throw refuse("reserve_ms", "Only a check reserves.");
  }
  if (reservation !== undefined && call.op !== "record") {
    throw refuse("reservation", "Only a record settles a reservation.");
  }
  if (reservation !== undefined && (reservation === "" || loneSurrogate.test(reservation))) {
    throw refuse("reservation", "It must be given back as it was answered.");
  }
  if (cost !== undefined && !(Number.isInteger(cost) && cost >= 0 && cost <= maxCost)) {
    throw refuse("cost", `It must be a whole number from 0 to ${maxCost}.`);
  }
  if (cost !== undefined && (reservation === undefined || demands.length > 0)) {
    throw refuse("cost", "It is for a reservation without demands.");
  }
  if (idempotencyKey !== undefined && !keyPattern.test(idempotencyKey)) {
    const detail = "It must be 1 to 255 bytes of printable ASCII, without a blank at either end.";
    throw refuse("idempotency_key", detail);
  }
  for (const [i, demand] of demands.entries()) {
    const refuseMember = (field: string, detail: string) =>
      refuse(demands.length > 1 ? `demands[${i}].${field}` : field, detail);
    for (const field of ["policy", "identifier"] as const) {
      if (loneSurrogate.test(demand[field])) {
        throw refuseMember(field, "It must be valid Unicode.");
      }
    }
    if (demand.cost !== undefined && !Number.isFinite(demand.cost)) {
      throw refuseMember("cost", `It must be a whole number from 1 to ${maxCost}.`); // JSON has no other numbers
    }
    if (demand.limit !== undefined && !Number.isFinite(demand.limit)) {
      throw refuseMember("limit", "It must be a whole number from 1 to the policy's max.");
    }
  }
}
