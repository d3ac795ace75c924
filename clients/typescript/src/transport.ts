/** Sends a request once over HTTP, with `fetch`, and reads the answer's head. It does not know calls. */
import { Failure } from "./failure.js";
import type { TraceContext } from "./trace.js";
import { parse, Unreadable } from "./wire.js";

/** The part of `fetch` that this client needs. */
export type Fetch = (url: string, init: RequestInit) => Promise<Response>;

export interface PostOptions {
  readonly signal: AbortSignal;
  readonly idempotencyKey?: string | undefined;
  readonly trace?: TraceContext | undefined;
  /** Gets an answer line by line, as the lines arrive. */
  readonly onLine?: (line: string) => void;
}

/** An answer of the service. */
export interface Reply {
  readonly status: number;
  readonly retryAfterMs: number;
  readonly replayed: boolean;
  /** `undefined` if there is none, or `onLine` got it. */
  readonly body: unknown;
  readonly inLines: boolean;
}

const mediaJson = "application/json";
const mediaProblem = "application/problem+json";
const mediaLines = "application/x-ndjson";
/** Longer than any call waits. */
const maxRetryAfterMs = 3_600_000;

/** Errors of a connection that was never made, by the codes that Node and Bun have for them. */
const notConnected = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
  "ConnectionRefused",
]);
/** Deno's error has it in the message of the cause. */
const notConnectedInDeno = "client error (Connect)";

export class Transport {
  readonly #base: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #fetch: Fetch;

  constructor(baseURL: string, headers: Readonly<Record<string, string>>, fetch: Fetch) {
    const url = new URL(baseURL);
    if (url.protocol !== "http:" && url.protocol !== "https:") {
      throw new TypeError(`ratelimitd: the base URL is ${url.protocol}//…: it must be http:// or https://`);
    }
    if (url.username !== "" || url.search !== "" || url.hash !== "") {
      throw new TypeError("ratelimitd: the base URL has a user, a query or a fragment: it must have none");
    }
    this.#base = `${url.origin}${url.pathname.replace(/\/+$/, "")}/v1/`;
    this.#headers = headers;
    this.#fetch = fetch;
  }

  /** Posts a body to a route, and reads the answer. It throws {@link Unreadable} only from `onLine`. */
  async post(route: string, body: string, options: PostOptions): Promise<Reply | Failure> {
    let response: Response;
    try {
      response = await this.#fetch(this.#base + route, {
        method: "POST",
        headers: this.#headersFor(options),
        body,
        redirect: "manual", // identifiers must reach only the named server
        signal: options.signal,
        ...uncached(),
      });
    } catch (error) {
      return lost(error, !isNotConnected(error));
    }
    try {
      const head = headOf(response);
      return await read(response, head, options).catch((error) => {
        if (error instanceof Unreadable) {
          return Failure.foreign(head.status, error.message, head.retryAfterMs);
        }
        throw error;
      });
    } catch (error) {
      return lost(error, true);
    }
  }

  #headersFor({ idempotencyKey, trace, onLine }: PostOptions): Record<string, string> {
    return {
      ...this.#headers,
      ...trace,
      "Content-Type": mediaJson,
      Accept: `${onLine === undefined ? "" : `${mediaLines}, `}${mediaJson}, ${mediaProblem}`,
      ...(idempotencyKey !== undefined && { "Idempotency-Key": idempotencyKey }),
    };
  }
}

/**
 * Keeps caches from answering: Next's `fetch` would give one decision to all. The workerd of older compatibility dates
 * refuses the option, and has no such cache.
 */
function uncached(): RequestInit {
  noStore ??= acceptsNoStore() ? { cache: "no-store" } : {};
  return noStore;
}

let noStore: RequestInit | undefined;

function acceptsNoStore(): boolean {
  try {
    new Request("http://127.0.0.1/", { cache: "no-store" });
    return true;
  } catch {
    return false;
  }
}

type Head = Pick<Reply, "status" | "retryAfterMs" | "replayed">;

function headOf(response: Response): Head {
  const seconds = Number(response.headers.get("Retry-After") ?? "");
  return {
    status: response.status,
    retryAfterMs: seconds > 0 ? Math.min(seconds * 1000, maxRetryAfterMs) : 0,
    replayed: response.headers.get("Idempotent-Replayed") === "true",
  };
}

async function read(response: Response, head: Head, { onLine }: PostOptions): Promise<Reply> {
  const type = (response.headers.get("Content-Type") ?? "").replace(/;.*/, "").trim().toLowerCase();
  if (onLine !== undefined && head.status === 200 && type === mediaLines) {
    await readLines(response, onLine);
    return { ...head, body: undefined, inLines: true };
  }
  const body = await response.text();
  if (head.status === 204) {
    return { ...head, body: undefined, inLines: false };
  }
  const wanted = head.status < 300 ? mediaJson : mediaProblem;
  if (type !== wanted) {
    throw new Unreadable(`not ${wanted}`);
  }
  return { ...head, body: parse(body), inLines: false };
}

async function readLines(response: Response, onLine: (line: string) => void): Promise<void> {
  if (response.body === null) {
    return;
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + decoder.decode(part.value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    try {
      lines.forEach(onLine);
    } catch (error) {
      await reader.cancel();
      throw error;
    }
  }
}

function lost(error: unknown, sent: boolean): Failure {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return new Failure("connection", `no answer: ${reasonOf(cause)}`, sent, { cause: error });
}

function reasonOf(error: unknown): string {
  return codeOf(error) ?? (error instanceof Error ? error.name : "the connection failed");
}

function isNotConnected(error: unknown): boolean {
  const cause = (error as { cause?: unknown } | undefined)?.cause;
  if (cause instanceof Error && cause.message.includes(notConnectedInDeno)) {
    return true;
  }
  return [codeOf(error), codeOf(cause)].some((code) => code !== undefined && notConnected.has(code));
}

function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === "string" ? code : undefined;
}
