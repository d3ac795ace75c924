/**
 * Middleware of Hono, on every runtime that it has:
 *
 *     const limit = limiter(client, { address: (c) => getConnInfo(c).remote.address });
 *     app.post("/login", limit("login"), login);
 */
import type { Client } from "../client.js";
import { Limiter, type Rules } from "./limiter.js";
import { answerOf, endingWith, orEnd, viewOfWeb, type WebLimiterOptions, withHeaders } from "./web.js";

export { decisionOf, type Rule, type Rules } from "./limiter.js";
export type { WebLimiterOptions } from "./web.js";

/** The parts of Hono's context that this needs. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  res: Response;
}

export type Middleware<C> = (context: C, next: () => Promise<void>) => Promise<Response | undefined>;

/** Returns a function that makes middleware from rules. `decisionOf` takes the context. */
export function limiter<C extends HonoContext = HonoContext>(
  client: Client,
  options: WebLimiterOptions<C>,
): (rules: Rules<C>) => Middleware<C> {
  const limits = new Limiter<C>(client, async (c) => viewOfWeb(c.req.raw, await options.address(c)), options);
  return (rules) => {
    const decide = limits.by(rules);
    return async (context, next) => {
      const verdict = await decide(context);
      const answer = answerOf(verdict);
      if (answer === undefined) {
        const release = limits.releaseOf(verdict);
        await orEnd(next, release);
        const response = withHeaders(await endingWith(context.res, context.req.raw, release), verdict);
        if (response !== context.res) {
          context.res = response; // Hono copies what is set here, which an upgrade forbids
        }
      }
      return answer;
    };
  };
}
