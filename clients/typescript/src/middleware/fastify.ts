/**
 * Hooks of Fastify routes:
 *
 *     const limit = limiter(client);
 *     app.post("/login", { onRequest: limit("login") }, login);
 */
import type { Client } from "../client.js";
import { Limiter, type LimiterOptions, type Rules } from "./limiter.js";
import { atEnd, type EndingResponse, type NodeRequest, viewOfNode } from "./node.js";

export { decisionOf, type LimiterOptions, type Rule, type Rules } from "./limiter.js";

/** The parts of Fastify's request that this needs. */
export interface FastifyRequest {
  readonly raw: NodeRequest;
}

/** The parts of Fastify's reply that this needs. */
export interface FastifyReply {
  /** Whether it was sent, or the handler sends it (`hijack`). */
  readonly sent?: boolean;
  readonly raw?: EndingResponse & { readonly headersSent?: boolean };
  code(status: number): unknown;
  headers(values: Record<string, string>): unknown;
  send(body: Uint8Array): unknown;
}

export type Hook<R> = (request: R, reply: FastifyReply) => Promise<unknown>;

/** Returns a function that makes hooks from rules. Handlers that need a type of request of their own give it as `R`. */
export function limiter<R extends FastifyRequest = FastifyRequest>(
  client: Client,
  options: LimiterOptions<R> = {},
): (rules: Rules<R>) => Hook<R> {
  const limits = new Limiter<R>(client, (request) => viewOfNode(request.raw), options);
  return (rules) => {
    const decide = limits.by(rules);
    return async (request, reply) => {
      const verdict = await decide(request);
      atEnd(reply.raw ?? {}, limits.releaseOf(verdict));
      const { headers, answer } = verdict;
      if (reply.sent) {
        return reply; // while this was decided
      }
      if (reply.raw?.headersSent) {
        if (answer !== undefined) {
          throw new Error(`ratelimitd: a ${answer.status} came too late: the headers had been sent`);
        }
        return undefined;
      }
      reply.headers(headers);
      if (answer === undefined) {
        return undefined;
      }
      reply.code(answer.status);
      reply.send(new TextEncoder().encode(answer.body)); // Fastify adds a charset to text
      return reply;
    };
  };
}
