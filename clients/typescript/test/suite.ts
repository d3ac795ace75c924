/** Reads and plays the cases of the conformance suite, which its README describes. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import {
  type Call,
  CallError,
  Client,
  type ClientOptions,
  ClosedError,
  type Confirm,
  CostTooLargeError,
  type Demand,
  InvalidCallError,
  KeyReusedError,
  NoReceiptError,
  NoRoomError,
  type Op,
  UnavailableError,
  UnknownPolicyError,
} from "ratelimitd";
import { suiteDir } from "./service.js";

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

interface CallOfCase {
  op: Op | "confirm";
  receipt?: string;
  demands?: Demand[];
  reserve_ms?: number;
  idempotency_key?: string;
}

export interface Step {
  do: Op | "reserve" | "settle" | "release" | "wait" | "refund" | "confirm" | "reset" | "explain" | "batch" | "close";
  demands?: Demand[];
  hold_ms?: number;
  within_ms?: number;
  reservation?: string;
  cost?: number;
  idempotency_key?: string;
  receipt?: string;
  policy?: string;
  identifier?: string;
  calls?: CallOfCase[];
  concurrently?: number;
  expect?: Json;
  save?: Record<string, string>;
}

export interface Scripted {
  status: number;
  headers: Record<string, string>;
  body: Json;
}

export interface Case {
  name: string;
  service?: "none" | "silent" | (Scripted | "cut")[];
  client?: Record<string, number | string | boolean>;
  steps: Step[];
  requests?: number;
  failed_open?: number;
}

export function readCases<T = Case>(name: string): T[] {
  return JSON.parse(readFileSync(`${suiteDir}/cases/${name}.json`, "utf8"));
}

/** Makes the client of a case. Tests that pass write nothing. */
export function clientOf(url: string, { client = {} }: Case, more: ClientOptions = {}): Client {
  const quiet = { info: () => {}, error: () => {} };
  return new Client(url, { logger: quiet, timeoutMs: 20_000, ...(camelCased(client) as ClientOptions), ...more });
}

/** Plays the steps of a case. */
export async function play(client: Client, { steps }: Case): Promise<void> {
  const names = new Names();
  for (const [i, step] of steps.entries()) {
    const outcome = await outcomeOf(client, names.resolve(step));
    assertMatches(outcome, step.expect ?? {}, `step ${i + 1}, ${step.do}`);
    for (const [member, name] of Object.entries(step.save ?? {})) {
      names.save(name, (outcome as Record<string, string>)[member] as string);
    }
  }
}

/** The value of `$name`: one that a step saved, or else a text of this case alone. */
class Names {
  readonly #values = new Map<string, string>();
  readonly #prefix = randomUUID();

  save(name: string, value: string): void {
    this.#values.set(`$${name}`, value);
  }

  resolve(step: Step): Step {
    const { expect: _, save: __, ...asked } = step;
    return this.#resolved(asked) as Step;
  }

  #resolved(value: unknown): unknown {
    if (typeof value === "string" && value.startsWith("$")) {
      return this.#values.get(value) ?? `${this.#prefix}${value}`;
    }
    return mapMembers(
      value,
      (name) => name,
      (member) => this.#resolved(member),
    );
  }
}

async function outcomeOf(client: Client, step: Step): Promise<Json> {
  if (step.concurrently !== undefined) {
    const outcomes = await Promise.all(Array.from({ length: step.concurrently }, () => single(client, step)));
    const count = (holds: (o: Record<string, Json>) => boolean) =>
      outcomes.filter((o) => holds(o as Record<string, Json>)).length;
    return {
      allowed: count((o) => o.allowed === true),
      denied: count((o) => o.allowed === false),
      done: count((o) => o.done === true),
      failed: count((o) => o.error !== undefined),
    };
  }
  return single(client, step);
}

async function single(client: Client, step: Step): Promise<Json> {
  try {
    return snakeCased((await ask(client, step)) ?? { done: true }) as Json;
  } catch (error) {
    return errorView(error);
  }
}

async function ask(client: Client, step: Step): Promise<unknown> {
  const {
    demands = [],
    hold_ms = 0,
    within_ms = 0,
    reservation = "",
    receipt = "",
    policy = "",
    identifier = "",
  } = step;
  const options = step.idempotency_key === undefined ? {} : { idempotencyKey: step.idempotency_key };
  switch (step.do) {
    case "check":
      return client.check(demands);
    case "record":
    case "take":
      return client[step.do](demands, options);
    case "reserve":
      return client.reserve(demands, hold_ms);
    case "wait":
      return client.wait(demands, within_ms);
    case "settle":
      return client.settle(reservation, { ...options, ...(step.cost !== undefined && { cost: step.cost }) });
    case "release":
      return client.release(reservation);
    case "refund":
      return client.refund(receipt);
    case "confirm":
      return client.confirm(receipt);
    case "reset":
      return client.reset(policy, identifier);
    case "explain":
      return client.explain(policy, identifier);
    case "close":
      return client.close();
    case "batch": {
      const results = await client.batch((step.calls ?? []).map((call) => camelCased(call) as Call | Confirm));
      return { results: results.map((r) => (r.error ? errorView(r.error) : (r.decision ?? { done: true }))) };
    }
  }
}

/** The kinds of errors, the more specific ones first. */
const kinds = [
  ["unknown_policy", UnknownPolicyError],
  ["cost_too_large", CostTooLargeError],
  ["key_reused", KeyReusedError],
  ["invalid", InvalidCallError],
  ["no_receipt", NoReceiptError],
  ["no_room", NoRoomError],
  ["unavailable", UnavailableError],
  ["closed", ClosedError],
] as const;

function errorView(error: unknown): Json {
  if (!(error instanceof CallError)) {
    throw error;
  }
  const kind = kinds.find(([, of]) => error instanceof of)?.[0] ?? "other";
  const { op, recorded = null, problem } = error;
  return { error: { kind, op, recorded, status: problem?.status ?? null, field: problem?.field ?? null } };
}

/** Checks that `got` has all members of `want`. */
function assertMatches(got: Json | undefined, want: Json, where: string): void {
  if (Array.isArray(want)) {
    assert.ok(Array.isArray(got) && got.length === want.length, `${where}: ${show(got)}, want ${show(want)}`);
    want.forEach((w, i) => {
      assertMatches(got[i], w, `${where}[${i}]`);
    });
  } else if (typeof want !== "object" || want === null) {
    assert.deepEqual(got, want, `${where}: ${show(got)}, want ${show(want)}`);
  } else if ("$present" in want) {
    assert.equal(got !== undefined && got !== "", want.$present, `${where}: ${show(got)}`);
  } else if ("$at_least" in want && "$at_most" in want) {
    const { $at_least: least, $at_most: most } = want as Record<string, number>;
    assert.ok(typeof got === "number" && got >= Number(least) && got <= Number(most), `${where}: ${show(got)}`);
  } else {
    assert.ok(typeof got === "object" && got !== null, `${where}: ${show(got)}, want ${show(want)}`);
    for (const [name, w] of Object.entries(want)) {
      assertMatches((got as { [name: string]: Json })[name], w, `${where}.${name}`);
    }
  }
}

const show = (value: unknown) => JSON.stringify(value);

function snakeCased(value: unknown): unknown {
  return mapMembers(value, (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), snakeCased);
}

function camelCased(value: unknown): unknown {
  return mapMembers(
    value,
    (name) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    camelCased,
  );
}

function mapMembers(value: unknown, rename: (name: string) => string, map: (member: unknown) => unknown): unknown {
  if (Array.isArray(value)) {
    return value.map(map);
  }
  if (typeof value !== "object" || value === null) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [rename(name), map(member)]));
}
