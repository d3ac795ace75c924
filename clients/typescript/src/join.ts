/**
 * Batches calls that are made at the same time. A lone call is sent at once. While some requests are in progress,
 * further calls wait, and are sent as one group as soon as a request is answered.
 *
 * It decides which calls are sent together and when; `send` sends a group.
 */
import type { PreparedCall } from "./call.js";
import { Failure } from "./failure.js";
import type { Answer } from "./wire.js";

/** The most requests in progress while earlier ones are late. */
const maxRequests = 64;
/** How long calls wait for an answer before another request is sent. */
const patienceMs = 10;
/** The most waiting calls: more would not be answered in time. */
const maxWaiting = 1 << 16;
/** Calls of a request. */
export const maxCalls = 1000;
/** Bytes of a request's calls; a batch may have 1 MiB. */
const maxSize = (1 << 20) - 64;
/** Bytes of a call that shares a request: a longer one is refused, and would spoil a batch. */
const maxSharedSize = 64 << 10;
/** The most calls of one policy and identifier in a request, because the service decides them one after the other. */
const maxAlike = 8;

/** One attempt of a call. */
export class Entry {
  readonly settled: Promise<Answer>;
  state: "new" | "waiting" | "sent" | "settled" = "new";
  group: Group | undefined;
  #resolve!: (answer: Answer) => void;

  constructor(readonly call: PreparedCall) {
    this.settled = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  settle(answer: Answer): void {
    if (this.state === "settled") {
      return;
    }
    this.state = "settled";
    this.#resolve(answer);
    this.group?.close();
  }
}

/** Calls that share a request. */
export class Group {
  readonly #abort = new AbortController();
  #open: number;

  constructor(readonly entries: readonly Entry[]) {
    this.#open = entries.length;
    for (const entry of entries) {
      entry.state = "sent";
      entry.group = this;
    }
  }

  /** Aborted when no caller waits for the answer any longer. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Notes that one of its entries is settled. */
  close(): void {
    this.#open--;
  }

  /** Ends the request if no caller waits for it any more. */
  abandon(): void {
    if (this.#open === 0) {
      this.#abort.abort();
    }
  }
}

export class Joiner {
  readonly #send: (group: Group) => Promise<void>;
  readonly #requests: number;
  readonly #joins: boolean;
  readonly #waiting = new Set<Entry>();
  readonly #running = new Set<Promise<void>>();
  #underWay = 0;
  #late: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  /** `send` settles all entries of a group. Further calls wait while `requests` are in progress. */
  constructor(send: (group: Group) => Promise<void>, requests: number, joins: boolean) {
    this.#send = send;
    this.#requests = requests;
    this.#joins = joins;
  }

  /** Sends a call, alone or with others. */
  enter(entry: Entry): void {
    if (this.#closed) {
      entry.settle(new Failure("closed", "the client is closed", false));
    } else if (!this.#joins) {
      this.sendTogether([entry]);
    } else if (this.#waiting.size >= maxWaiting) {
      entry.settle(new Failure("full", "too many calls wait", false));
    } else {
      entry.state = "waiting";
      this.#waiting.add(entry);
      if (this.#underWay < this.#requests) {
        this.#sendNext();
      } else {
        this.#arm();
      }
    }
  }

  /** Sends calls as one request, for which no waiting call waits. */
  sendTogether(entries: readonly Entry[]): void {
    this.bypass(
      () => this.#send(new Group(entries)),
      () => {
        for (const entry of entries) {
          this.enter(entry); // which says so
        }
      },
    );
  }

  /** Makes a request for which no waiting call waits, or calls `closed`. */
  bypass(request: () => Promise<void>, closed: () => void): void {
    if (this.#closed) {
      closed();
      return;
    }
    this.#run(request);
  }

  /** Settles an entry whose caller no longer waits; `why` makes the failure. */
  leave(entry: Entry, why: (sent: boolean) => Failure): void {
    this.#waiting.delete(entry);
    entry.settle(why(entry.state === "sent"));
    entry.group?.abandon();
  }

  /** Refuses further calls, and waits until all earlier ones have answers. */
  async close(): Promise<void> {
    this.#closed = true;
    while (this.#running.size > 0) {
      await Promise.all(this.#running);
    }
  }

  #run(request: () => Promise<void>): void {
    const running = request().finally(() => this.#running.delete(running));
    this.#running.add(running);
  }

  #sendNext(): void {
    const group = this.#gather();
    if (group === undefined) {
      return;
    }
    this.#underWay++;
    this.#run(async () => {
      await this.#send(group);
      this.#underWay--;
      if (this.#underWay < this.#requests) {
        this.#sendNext();
      }
      this.#arm();
    });
  }

  /** Sends another request after a while without an answer. */
  #arm(): void {
    if (this.#late !== undefined || this.#waiting.size === 0) {
      return;
    }
    this.#late = setTimeout(() => {
      this.#late = undefined;
      if (this.#underWay < maxRequests) {
        this.#sendNext();
      }
      this.#arm();
    }, patienceMs);
  }

  /** Takes the waiting calls that are sent together. */
  #gather(): Group | undefined {
    const entries: Entry[] = [];
    const alike = new Map<string, number>();
    let size = 0;
    for (const entry of this.#waiting) {
      const { call } = entry;
      const long = call.size > maxSharedSize;
      const fits = entries.length === 0 || (!long && size + call.size <= maxSize);
      if (!fits || call.keys.some((key) => (alike.get(key) ?? 0) >= maxAlike)) {
        continue;
      }
      this.#waiting.delete(entry);
      entries.push(entry);
      size += call.size;
      for (const key of call.keys) {
        alike.set(key, (alike.get(key) ?? 0) + 1);
      }
      if (long || entries.length === maxCalls) {
        break;
      }
    }
    return entries.length === 0 ? undefined : new Group(entries);
  }
}
