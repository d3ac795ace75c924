import { unixSocket } from "./address.js";
import type { RequestView } from "./identify.js";

/** The required parts of Node's request, or of a replacement, such as those of serverless adapters. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly headers?: { readonly [name: string]: string | readonly string[] | undefined } | undefined;
  readonly rawHeaders?: readonly string[] | undefined;
  readonly socket?: NodeSocket | null | undefined;
}

interface NodeSocket {
  readonly remoteAddress?: string | undefined;
}

/** The parts of Node's response, or of a replacement, that show when it ends. */
export interface EndingResponse {
  readonly writableFinished?: boolean;
  readonly destroyed?: boolean;
  /** Of HTTP/2. */
  readonly stream?: { readonly destroyed?: boolean } | null;
  on?(event: string, listener: () => void): unknown;
}

/** Calls `end`, if there is one, when a response has been sent or its client is gone. It may call it twice. */
export function atEnd(response: EndingResponse, end: (() => unknown) | undefined): void {
  if (end === undefined) {
    return;
  }
  if (response.writableFinished || response.destroyed || response.stream?.destroyed) {
    end();
    return;
  }
  response.on?.("finish", end);
  response.on?.("close", end);
}

export function viewOfNode(request: NodeRequest): RequestView {
  return { address: addressOf(request.socket), header: (name) => valuesOf(request, name) };
}

/**
 * Returns the address of a connection, or {@link unixSocket}. A TCP connection that has ended has no address either, so
 * the server's address distinguishes them.
 */
function addressOf(socket: NodeSocket | null | undefined): string | undefined {
  const { server } = (socket ?? {}) as { readonly server?: { address?(): unknown } | null };
  return socket?.remoteAddress ?? (typeof server?.address?.() === "string" ? unixSocket : undefined);
}

/**
 * Returns all values of a header. `headers` decides, because adapters set nothing else, and the application may have
 * changed it. Only `rawHeaders` shows that a header was repeated.
 */
function valuesOf({ headers = {}, rawHeaders = [] }: NodeRequest, name: string): readonly string[] {
  const values = Object.entries(headers).flatMap(([key, value]) => (key.toLowerCase() === name ? (value ?? []) : []));
  const sent = rawHeaders.filter((_, i) => i % 2 === 1 && rawHeaders[i - 1]?.toLowerCase() === name);
  const same = values.length === 1 && (values[0] === sent.join(", ") || values[0] === sent[0]);
  return same ? sent : values;
}
