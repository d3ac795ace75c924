import type { Verdict } from "./answer.js";
import type { RequestView } from "./identify.js";
import type { Awaitable, LimiterOptions } from "./limiter.js";

/** Options for requests without the address of their connection. */
export interface WebLimiterOptions<R> extends LimiterOptions<R> {
  /**
   * Returns the address of the connection, or of the client if the platform has it in a header of its own; `unix` for
   * a connection by a unix socket.
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

/**
 * Reports whether a response can be copied: not that of an upgrade to a WebSocket, nor one that is being read already.
 */
function isCopyable(response: Response | undefined): boolean {
  return response !== undefined && response.status >= 200 && !response.bodyUsed && !response.body?.locked;
}
