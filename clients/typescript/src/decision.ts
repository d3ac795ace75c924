/** How a policy is applied: `shadow` decides and reports, and always allows. */
export type Mode = "enforce" | "shadow" | "off";

/** The kind of an administrator's override for an identifier. */
export type Override = "allow" | "block" | "limits";

/** A rule of a policy about phone numbers, which denies whatever the counts. */
export type Reason = "country" | "number_type";

/** Whether the units of a call count. */
export type Recorded = "yes" | "no" | "unknown";

/** The verdict of one limit of a policy. */
export interface LimitDecision {
  readonly name: string;
  readonly algorithm: string;
  readonly limit: number;
  readonly windowMs: number;
  readonly allowed: boolean;
  readonly used: number;
  readonly remaining: number;
  readonly resetAfterMs: number;
  /** `null` when no wait helps. */
  readonly retryAfterMs: number | null;
  /** Whether a shadow, which denies nothing, would deny; absent: the limit is enforced. */
  readonly wouldDeny?: boolean;
}

/** The service's decision on one demand. */
export interface DemandDecision {
  readonly allowed: boolean;
  /** The verdict; it differs from `allowed` only for a policy in mode `shadow`. */
  readonly wouldAllow: boolean;
  readonly policy: string;
  /** Of the tightest limit, as are `remaining`, `used` and `resetAfterMs`. */
  readonly limit: number;
  /** Units that could be spent at once, after this call. */
  readonly remaining: number;
  /** After this call: exact up to the limit, beyond it a lower bound. */
  readonly used: number;
  /** Until no units are used. */
  readonly resetAfterMs: number;
  /** Until the same call passes if no other call comes: 0 when allowed, `null` when no wait helps. */
  readonly retryAfterMs: number | null;
  /** Empty if the client failed open. */
  readonly limits: readonly LimitDecision[];
  readonly mode: Mode;
  /** The override that decided, if one did. */
  readonly override?: Override;
  /** A block decided: one after an earlier denial, or by an override. */
  readonly blocked: boolean;
  /** The policy's rule about numbers that denied, if one did. */
  readonly reason?: Reason;
  /** The store, or the service, did not answer: something else decided. */
  readonly degraded: boolean;
  /** Of a degraded decision, whether its units count. */
  readonly recorded?: Recorded;
  /** Units that a settled reservation counts; of several demands, each of `demands` has its own. */
  readonly settled?: number;
  /** Settled units beyond the reservation, which count whatever the limit. */
  readonly over?: number;
}

/**
 * The service's decision on a call. With several demands its numbers are of the tightest limit, but `allowed`,
 * `wouldAllow`, `retryAfterMs` and `degraded` are for all.
 */
export interface Decision extends DemandDecision {
  /** The receipt by which recorded units can be refunded once; absent: none were recorded. */
  readonly receipt?: string;
  /**
   * The receipt for units under concurrent limits: refund it when the request has ended. This may be repeated. Absent:
   * there are none.
   */
  readonly release?: string;
  /** The reservation by which {@link Client.settle} records held units; absent: none are held. */
  readonly reservation?: string;
  /** It is the recorded answer to an earlier call with the same idempotency key. */
  readonly replayed: boolean;
  /** One for each of several demands, in their order; then one for each that their policies derive. */
  readonly demands?: readonly DemandDecision[];
}

/** An override in force, as {@link Explanation} shows it. */
export interface OverrideInForce {
  /** Absent: the override is for a prefix. */
  readonly key?: string;
  /** The prefix of its identifiers; absent: it is for one identifier. */
  readonly prefix?: string;
  readonly policy: string;
  readonly kind: Override;
  readonly limits?: readonly { readonly name: string; readonly limit: number; readonly burst?: number }[];
  /** Null: it has no end. */
  readonly expiresAt: string | null;
  readonly expiresInMs: number | null;
  readonly madeAt: string;
  readonly by?: string;
}

/** Why an identifier would be allowed or denied now. */
export interface Explanation {
  readonly policy: string;
  /** The hash under which the identifier is counted, in hex. */
  readonly key: string;
  readonly allowed: boolean;
  readonly wouldAllow: boolean;
  /** What decides. */
  readonly because: "off" | "override" | "country" | "number_type" | "block" | "store" | "limit" | "derived" | "room";
  /** The same in a sentence. */
  readonly detail: string;
  readonly retryAfterMs: number | null;
  /** The limits that have no room. */
  readonly deniedBy: readonly string[];
  readonly mode: Mode;
  readonly guarantee: string;
  readonly degraded: boolean;
  readonly limits: readonly (LimitDecision & { readonly policyLimit: number })[];
  readonly override: OverrideInForce | null;
  readonly block: { readonly until: string; readonly strikes: number } | null;
  readonly resetAt: string | null;
  /** The same for demands that the policy derives from the identifier. */
  readonly derived?: readonly Explanation[];
}
