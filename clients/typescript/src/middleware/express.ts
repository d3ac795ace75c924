/**
 * Middleware of Express, and of everything that takes `(request, response, next)`:
 *
 *     const limit = limiter(client);
 *     app.post("/login", limit("login"), login);
 */
import type { Client } from "../client.js";
import { Limiter, type LimiterOptions, type Rules } from "./limiter.js";
import { type NodeRequest, viewOfNode } from "./node.js";

export { decisionOf, type LimiterOptions, type Rule, type Rules } from "./limiter.js";

/** What this needs of a response of Node. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body: string): unknown;
}

export type Middleware<R> = (request: R, response: NodeResponse, next: (error?: unknown) => void) => void;

/** Returns what makes middleware of rules. Handlers that need a type of request of their own give it as `R`. */
export function limiter<R extends NodeRequest = NodeRequest>(
  client: Client,
  options: LimiterOptions<R> = {},
): (rules: Rules<R>) => Middleware<R> {
  const limits = new Limiter<R>(client, viewOfNode, options);
  return (rules) => (request, response, next) => {
    limits.decide(request, rules).then(({ headers, answer }) => {
      for (const [name, value] of Object.entries(headers)) {
        response.setHeader(name, value);
      }
      if (answer === undefined) {
        next();
        return;
      }
      response.statusCode = answer.status;
      response.end(answer.body);
    }, next);
  };
}
