/**
 * Middleware of Hono, on every runtime that it has:
 *
 *     const limit = limiter(client, { address: (c) => getConnInfo(c).remote.address });
 *     app.post("/login", limit("login"), login);
 */
import type { Client } from "../client.js";
import { Limiter, type Rules } from "./limiter.js";
import { answerOf, viewOfWeb, type WebLimiterOptions, withHeaders } from "./web.js";

export { decisionOf, type Rule, type Rules } from "./limiter.js";
export type { WebLimiterOptions } from "./web.js";

/** What this needs of a context of Hono. */
export interface HonoContext {
  readonly req: { readonly raw: Request };
  res: Response;
}

export type Middleware<C> = (context: C, next: () => Promise<void>) => Promise<Response | undefined>;

/** Returns what makes middleware of rules. `decisionOf` takes the context. */
export function limiter<C extends HonoContext = HonoContext>(
  client: Client,
  options: WebLimiterOptions<C>,
): (rules: Rules<C>) => Middleware<C> {
  const limits = new Limiter<C>(client, (c) => viewOfWeb(c.req.raw, options.address(c)), options);
  return (rules) => async (context, next) => {
    const verdict = await limits.decide(context, rules);
    const answer = answerOf(verdict);
    if (answer === undefined) {
      await next();
      context.res = withHeaders(context.res, verdict);
    }
    return answer;
  };
}
