/**
 * Asks a ratelimitd: may this phone number have another code?
 *
 * A denial is not an error: `decision.allowed` is false. A {@link CallError} says that there is no decision.
 */
export type { Call, Confirm, Demand, Op } from "./call.js";
export {
  type BatchResult,
  type CallOptions,
  Client,
  type ConfirmResult,
  type CountingOptions,
  type Demands,
  type SettleOptions,
} from "./client.js";
export type {
  Decision,
  DemandDecision,
  Explanation,
  LimitDecision,
  Mode,
  Override,
  OverrideInForce,
  Reason,
  Recorded,
} from "./decision.js";
export {
  AbortedError,
  CallError,
  ClosedError,
  CostTooLargeError,
  type ErrorOp,
  InvalidCallError,
  KeyReusedError,
  NoReceiptError,
  NoRoomError,
  type Problem,
  UnavailableError,
  UnknownPolicyError,
} from "./errors.js";
export type { ClientOptions, Logger } from "./options.js";
export type { TraceContext } from "./trace.js";
export type { Fetch } from "./transport.js";
