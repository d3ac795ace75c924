import { clientAddress, isAddress, type Networks } from "./address.js";

/** The parts of a request that limits use. */
export interface RequestView {
  /** Of the connection, or `unix`; `undefined` if unknown. */
  readonly address: string | undefined;
  /** All values of a header, whose name is in lower case. */
  readonly header: (name: string) => readonly string[];
}

/**
 * The source of the identifier: `ip`, the client's address; the value of a header that the service itself, or a proxy
 * in front of it, trusts; `api-key`, X-API-Key or a bearer token, but not both; or the result of a function.
 */
export type By<R> =
  | "ip"
  | `header:${string}`
  | "api-key"
  | ((request: R) => string | undefined | null | Promise<string | undefined | null>);

/** Prefix of the address of a caller without another name. */
const unidentified = "ip\n";
/** Prefix of a name that looks like an address, so that it can't use up the limit of that address. */
const named = "name\n";
const hashed = "sha256\n";
const maxIdentifierBytes = 1024;

/**
 * Returns the sender of a request, like the other entrances of ratelimitd; `undefined` if a trusted proxy hides it. A
 * caller that omits a header is identified by its address, so that this does not evade a limit.
 */
export async function identify<R>(
  by: By<R>,
  request: R,
  view: RequestView,
  trusted: Networks,
): Promise<string | undefined> {
  const name = typeof by === "function" ? await by(request) : nameOf(by, view);
  if (name !== undefined && name !== null && typeof name !== "string") {
    throw new TypeError(`ratelimitd: by returned a ${typeof name}: it must return a string, or undefined`);
  }
  if (name !== undefined && name !== null && name !== "") {
    return bounded(name);
  }
  const address = clientAddress(view.address ?? "unknown", view.header("x-forwarded-for"), trusted);
  if (address === undefined || by === "ip") {
    return address;
  }
  return unidentified + address;
}

function nameOf(by: "ip" | `header:${string}` | "api-key", view: RequestView): string | undefined {
  if (by === "ip") {
    return undefined;
  }
  const name = by === "api-key" ? apiKeyOf(view) : only(view.header(by.slice("header:".length).toLowerCase()));
  return name !== undefined && isAddress(name.trim()) ? named + name : name;
}

function apiKeyOf(view: RequestView): string | undefined {
  const authorizations = view.header("authorization");
  const token = /^bearer[ \t]+(.+)$/i.exec(only(authorizations) ?? "")?.[1]?.trim();
  if (view.header("x-api-key").length === 0) {
    return token;
  }
  return token !== undefined || authorizations.length > 1 ? undefined : only(view.header("x-api-key"));
}

/** Returns the value if there is only one: with several, it is unknown which one later services use. */
function only(values: readonly string[]): string | undefined {
  return values.length === 1 ? values[0] : undefined;
}

/** Returns an identifier, or a hash of one that ratelimitd would not take. */
async function bounded(identifier: string): Promise<string> {
  const bytes = new TextEncoder().encode(identifier);
  if (bytes.length <= maxIdentifierBytes && !/\p{Surrogate}/u.test(identifier)) {
    return identifier;
  }
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return hashed + Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
