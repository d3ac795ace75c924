/**
 * Wraps route handlers of Next, and all others that take a `Request` and return a `Response`:
 *
 *     const limit = limiter(client, { address: (request) => request.headers.get("x-real-ip") });
 *     export const POST = limit("login", async (request) => Response.json(await login(request)));
 */
import type { Client } from "../client.js";
import { Limiter, type Rules } from "./limiter.js";
import { answerOf, endingWith, orEnd, viewOfWeb, type WebLimiterOptions, withHeaders } from "./web.js";

export { decisionOf, type Rule, type Rules } from "./limiter.js";
export type { WebLimiterOptions } from "./web.js";

export type Handler<R, Rest extends unknown[]> = (request: R, ...rest: Rest) => Response | Promise<Response>;

/** Returns a function that wraps handlers in rules. */
export function limiter<R extends Request = Request>(
  client: Client,
  options: WebLimiterOptions<R>,
): <Rest extends unknown[]>(rules: Rules<R>, handler: Handler<R, Rest>) => Handler<R, Rest> {
  const limits = new Limiter<R>(client, async (request) => viewOfWeb(request, await options.address(request)), options);
  return (rules, handler) => {
    const decide = limits.by(rules);
    return async (request, ...rest) => {
      const verdict = await decide(request);
      const answer = answerOf(verdict);
      if (answer !== undefined) {
        return answer;
      }
      const release = limits.releaseOf(verdict);
      const response = await orEnd(() => handler(request, ...rest), release);
      const end = passesOn(response) ? undefined : release;
      return withHeaders(await endingWith(response, request, end), verdict);
    };
  };
}

/** Reports whether Next's middleware passes on a request with this response, so that its end can't be seen. */
function passesOn(response: Response | undefined): boolean {
  return ["x-middleware-next", "x-middleware-rewrite"].some((name) => response?.headers.has(name));
}
