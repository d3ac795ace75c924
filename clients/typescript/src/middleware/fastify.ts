/**
 * Hooks of Fastify routes:
 *
 *     const limit = limiter(client);
 *     app.post("/login", { onRequest: limit("login") }, login);
 */
import type { Client } from "../client.js";
import { Limiter, type LimiterOptions, type Rules } from "./limiter.js";
import { type NodeRequest, viewOfNode } from "./node.js";

export { decisionOf, type LimiterOptions, type Rule, type Rules } from "./limiter.js";

/** What this needs of a request of Fastify. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
}

/** What this needs of a reply of Fastify. */
export interface FastifyReply {
  code(status: number): unknown;
  headers(values: Record<string, string>): unknown;
  send(body: Uint8Array): unknown;
}

export type Hook<R> = (request: R, reply: FastifyReply) => Promise<unknown>;

/** Returns what makes hooks of rules. Handlers that need a type of request of their own give it as `R`. */
export function limiter<R extends FastifyRequest = FastifyRequest>(
  client: Client,
  options: LimiterOptions<R> = {},
): (rules: Rules<R>) => Hook<R> {
  const limits = new Limiter<R>(client, (request) => viewOfNode(request.raw), options);
  return (rules) => async (request, reply) => {
    const { headers, answer } = await limits.decide(request, rules);
    reply.headers(headers);
    if (answer === undefined) {
      return undefined;
    }
    reply.code(answer.status);
    reply.send(new TextEncoder().encode(answer.body)); // Fastify adds a charset to text
    return reply;
  };
}
