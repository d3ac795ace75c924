import type { Verdict } from "./answer.js";
import type { RequestView } from "./identify.js";
import type { Awaitable, LimiterOptions } from "./limiter.js";

/** Options for requests without the address of their connection. */
export interface WebLimiterOptions<R> extends LimiterOptions<R> {
  /**
   * Returns the address of the connection, or of the client if the platform has it in a header of its own; `unix` for
   * a connection through a unix socket.
   */
  readonly address: (request: R) => Awaitable<string | undefined | null>;
}

export function viewOfWeb({ headers }: Request, address: string | undefined | null): RequestView {
  return {
    address: address ?? undefined,
    header: (name) => {
      const value = headers.get(name);
      return value === null ? [] : [value];
    },
  };
}

/** Returns the answer to a request that does not pass. */
export function answerOf({ headers, answer }: Verdict): Response | undefined {
  return answer && new Response(answer.body, { status: answer.status, headers });
}

/** Returns a response with the headers of a verdict, too. It copies a response whose headers cannot be changed. */
export function withHeaders(response: Response, { headers }: Verdict): Response {
  if (!isCopyable(response)) {
    return response;
  }
  const copy = new Response(response.body, response);
  for (const [name, value] of Object.entries(headers)) {
    copy.headers.set(name, value);
  }
  return copy;
}

/** What happens at the end of a response; `undefined`: nothing does. It never rejects. */
export type End = (() => Promise<void>) | undefined;

/** Returns the result of `handle`. If it throws, there is no response, so the request ends there. */
export async function orEnd<T>(handle: () => Awaitable<T>, end: End): Promise<T> {
  try {
    return await handle();
  } catch (error) {
    await end?.();
    throw error;
  }
}

/**
 * Returns a response that calls `end` just before its body ends: read as a whole, failed, or left by the client. If
 * the body is not read, it calls it at once.
 */
export async function endingWith(response: Response, { method }: Request, end: End): Promise<Response> {
  if (end === undefined) {
    return response;
  }
  if (!isCopyable(response) || response.body === null || method === "HEAD") {
    await end();
    return response;
  }
  return new Response(bodyEndingWith(response.body, end), response);
}

function bodyEndingWith(body: ReadableStream<Uint8Array>, end: () => Promise<void>): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  // Hosts such as workerd drop work that is not awaited before the body ends.
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await orEnd(() => reader.read(), end);
        if (done) {
          await end();
          controller.close();
        } else {
          controller.enqueue(value);
        }
      },
      async cancel(reason) {
        await Promise.all([end(), reader.cancel(reason)]);
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * Reports whether a response can be copied: not that of an upgrade to a WebSocket, nor one that is being read already.
 */
function isCopyable(response: Response | undefined): boolean {
  return response !== undefined && response.status >= 200 && !response.bodyUsed && !response.body?.locked;
}
