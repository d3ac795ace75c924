/**
 * Middleware of Express, and of everything that takes `(request, response, next)`:
 *
 *     const limit = limiter(client);
 *     app.post("/login", limit("login"), login);
 */
import type { Client } from "../client.js";
import type { Verdict } from "./answer.js";
import { Limiter, type LimiterOptions, type Rules } from "./limiter.js";
import { atEnd, type EndingResponse, type NodeRequest, viewOfNode } from "./node.js";

export { decisionOf, type LimiterOptions, type Rule, type Rules } from "./limiter.js";

/** The parts of Node's response that this needs. */
export interface NodeResponse extends EndingResponse {
  statusCode: number;
  readonly headersSent?: boolean;
  readonly writableEnded?: boolean;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
}

export type Middleware<R> = (request: R, response: NodeResponse, next: (error?: unknown) => unknown) => void;

/**
 * Returns a function that makes middleware from rules. Handlers that need a type of request of their own give it as
 * `R`.
 */
export function limiter<R extends NodeRequest = NodeRequest>(
  client: Client,
  options: LimiterOptions<R> = {},
): (rules: Rules<R>) => Middleware<R> {
  const limits = new Limiter<R>(client, viewOfNode, options);
  return (rules) => {
    const decide = limits.by(rules);
    const begin = async (request: R, response: NodeResponse) => {
      const verdict = await decide(request);
      atEnd(response, limits.releaseOf(verdict));
      return verdict;
    };
    return (request, response, next) => {
      proceed(begin(request, response), response, next).catch((error) => {
        limits.tellUncaught(error);
        endUnanswered(response);
      });
    };
  };
}

/** Answers, or calls `next` once. It rejects only with errors of `next`. */
async function proceed(
  deciding: Promise<Verdict>,
  response: NodeResponse,
  next: (error?: unknown) => unknown,
): Promise<void> {
  let passes: boolean;
  try {
    passes = answer(response, await deciding);
  } catch (error) {
    await next(error);
    return;
  }
  if (passes) {
    await next();
  }
}

/** Writes a verdict, and returns whether the request goes on. It does not change an answer that has been sent. */
function answer(response: NodeResponse, { headers, answer }: Verdict): boolean {
  if (response.writableEnded) {
    return false; // such as by connect-timeout
  }
  if (response.headersSent) {
    if (answer !== undefined) {
      throw new Error(`ratelimitd: a ${answer.status} came too late: the headers had been sent`);
    }
    return true;
  }
  for (const [name, value] of Object.entries(headers)) {
    response.setHeader(name, value);
  }
  if (answer !== undefined) {
    response.statusCode = answer.status;
    response.end(answer.body);
  }
  return answer === undefined;
}

/** Answers 500, unless an answer was sent. */
function endUnanswered(response: NodeResponse): void {
  if (!response.headersSent && !response.writableEnded) {
    response.statusCode = 500;
    response.end();
  }
}
