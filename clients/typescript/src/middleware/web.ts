import type { Verdict } from "./answer.js";
import type { RequestView } from "./identify.js";
import type { LimiterOptions } from "./limiter.js";

/** Options where a request does not tell the address of its connection. */
export interface WebLimiterOptions<R> extends LimiterOptions<R> {
  /** Returns the address of the connection, or of the client where the platform tells it in a header of its own. */
  readonly address: (request: R) => string | undefined | null;
}

export function viewOfWeb({ method, headers }: Request, address: string | undefined | null): RequestView {
  return {
    method,
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

/** Returns a response with the headers of a verdict too: some have headers that cannot be changed. */
export function withHeaders(response: Response, { headers }: Verdict): Response {
  const copy = new Response(response.body, response);
  for (const [name, value] of Object.entries(headers)) {
    copy.headers.set(name, value);
  }
  return copy;
}
