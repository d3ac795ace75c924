import type { RequestView } from "./identify.js";

/** What this needs of a request of Node. */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly headersDistinct: { readonly [name: string]: string[] | undefined };
  readonly socket: { readonly remoteAddress?: string | undefined };
}

export function viewOfNode(request: NodeRequest): RequestView {
  return {
    method: request.method ?? "GET",
    address: request.socket.remoteAddress,
    header: (name) => request.headersDistinct[name] ?? [],
  };
}
