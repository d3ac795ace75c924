/** IP addresses: the sender of a request, behind trusted proxies. Needs nothing of any runtime. */

/** 4 or 16 bytes. */
type Address = readonly number[];

/** The name for a connection through a unix socket, which has no address. */
export const unixSocket = "unix";

/** Networks, such as `10.0.0.0/8` or `192.0.2.7`, and `unix`. */
export class Networks {
  readonly #prefixes: readonly (readonly [address: Address, bits: number])[];
  readonly #hasUnix: boolean;

  constructor(texts: readonly string[]) {
    if (!Array.isArray(texts)) {
      throw new TypeError("ratelimitd: trustedProxies must be a list, such as ['10.0.0.0/8']");
    }
    this.#hasUnix = texts.includes(unixSocket);
    this.#prefixes = texts.filter((text) => text !== unixSocket).map(parsePrefix);
  }

  has(peer: Address | typeof unixSocket): boolean {
    if (peer === unixSocket) {
      return this.#hasUnix;
    }
    return this.#prefixes.some(([prefix, bits]) => prefix.length === peer.length && sameBits(prefix, peer, bits));
  }
}

/**
 * Returns the address that a request comes from: that of the connection or, while that is one of `trusted`, the one
 * for which it forwards. Of IPv6, a /64 is one client, except that an address that stands for an IPv4 address counts
 * as that. `undefined`: a trusted proxy's header has no valid address.
 */
export function clientAddress(
  connection: string,
  forwardedFor: readonly string[],
  trusted: Networks,
): string | undefined {
  let peer = parsePeer(connection);
  if (peer === undefined) {
    return connection;
  }
  const hops = forwardedFor.flatMap((line) => line.split(",")).map((hop) => hop.trim());
  for (const hop of hops.filter((h) => h !== "").reverse()) {
    if (!trusted.has(peer)) {
      break;
    }
    peer = parsePeer(hop);
    if (peer === undefined) {
      return undefined;
    }
  }
  return peer === unixSocket ? "unknown" : callerOf(peer);
}

/** Reports whether text could be a result of {@link clientAddress}. */
export function isAddress(text: string): boolean {
  return text === "@" || parseAddress(text.replace(/\/\d+$/, "")) !== undefined;
}

/** Reads a network, or throws an error that says why it is wrong. */
function parsePrefix(text: string): [address: Address, bits: number] {
  const [before = "", bits, ...more] = text.split("/");
  const written = parseV4(before) ?? parseV6(before);
  const length = bits === undefined ? 8 * (written?.length ?? 0) : /^\d{1,3}$/.test(bits) ? Number(bits) : Number.NaN;
  if (written !== undefined && more.length === 0 && length <= 8 * written.length) {
    const address = unmapped(written);
    const ofAddress = length - 8 * (written.length - address.length);
    if (ofAddress >= 0 && address.every((byte, i) => byte === (byte & maskOf(i, ofAddress)))) {
      return [address, ofAddress];
    }
  }
  const want = `write it such as 10.0.0.0/8 or 192.0.2.7, or ${unixSocket}`;
  throw new TypeError(`ratelimitd: trustedProxies has ${text}, which is no address and no network: ${want}`);
}

/** Reads a peer: an address with a port or without, or a unix socket, which nginx writes as `unix:`. */
function parsePeer(text: string): Address | typeof unixSocket | undefined {
  return text === unixSocket || text === `${unixSocket}:` ? unixSocket : parseAddress(text);
}

/** Reads an address with a port or without. */
function parseAddress(text: string): Address | undefined {
  const bracketed = /^\[(.*)\](:\d+)?$/.exec(text)?.[1];
  const bare = (bracketed ?? text.replace(/^([^:]*):\d+$/, "$1")).replace(/%.*$/, "");
  const address = parseV4(bare) ?? parseV6(bare);
  return address && unmapped(address);
}

/** Returns the IPv4 address that is written as IPv6; others are not changed. */
function unmapped(address: Address): Address {
  return address.length === 16 && startsWith(address, mapped) ? address.slice(12) : address;
}

// IPv6 networks in which each address stands for an IPv4 address; as a /64, all would count as one.
const mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]; // RFC 4291, section 2.5.5.2
const translated = [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]; // RFC 2765, section 2.1
const compatible = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; // RFC 4291, section 2.5.5.1; except :: and ::1
const nat64 = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]; // RFC 6052, section 2.1
const nat64Local = [0, 0x64, 0xff, 0x9b, 0, 1]; // RFC 8215: networks of any length in it
const sixToFour = [0x20, 0x02]; // RFC 3056, section 2
const teredo = [0x20, 0x01, 0, 0]; // RFC 4380, section 4

/**
 * Returns the caller that is counted for an address. Trust never depends on it, because anybody can have a tunnel that
 * ends at any address.
 */
function callerOf(address: Address): string {
  if (address.length === 4) {
    return address.join(".");
  }
  const within = (prefix: Address) => startsWith(address, prefix);
  if (within(sixToFour)) {
    return address.slice(2, 6).join(".");
  }
  if (within(teredo)) {
    const inverted = address.slice(12).map((byte) => byte ^ 0xff);
    return inverted.join(".");
  }
  const isLocal = within(nat64Local);
  const endsInV4 = within(translated) || within(nat64) || (within(compatible) && address[12] !== 0);
  if (endsInV4 || (isLocal && address.slice(8, 12).every((byte) => byte === 0))) {
    return address.slice(12).join(".");
  }
  return isLocal ? textOf(address) : subnet64(address);
}

function startsWith(address: Address, prefix: Address): boolean {
  return prefix.every((byte, i) => byte === address[i]);
}

function parseV4(text: string): Address | undefined {
  const parts = text.split(".");
  const sound = parts.length === 4 && parts.every((p) => /^(0|[1-9]\d{0,2})$/.test(p) && Number(p) < 256);
  return sound ? parts.map(Number) : undefined;
}

function parseV6(text: string): Address | undefined {
  const halves = text.split("::");
  if (halves.length > 2 || !text.includes(":")) {
    return undefined;
  }
  const [head, tail] = halves.map(parseGroups);
  if (head === undefined || (halves.length === 2 && tail === undefined)) {
    return undefined;
  }
  const missing = 16 - head.length - (tail?.length ?? 0);
  if (tail === undefined ? missing !== 0 : missing < 2) {
    return undefined;
  }
  return [...head, ...new Array<number>(missing).fill(0), ...(tail ?? [])];
}

/** Reads groups of 16 bits, the last of which may be an IPv4 address. */
function parseGroups(text: string): number[] | undefined {
  const bytes: number[] = [];
  const groups = text === "" ? [] : text.split(":");
  for (const [i, group] of groups.entries()) {
    const v4 = i === groups.length - 1 ? parseV4(group) : undefined;
    if (v4 !== undefined) {
      bytes.push(...v4);
    } else if (/^[0-9a-fA-F]{1,4}$/.test(group)) {
      const value = Number.parseInt(group, 16);
      bytes.push(value >> 8, value & 255);
    } else {
      return undefined;
    }
  }
  return bytes;
}

/** Returns the /64 of an IPv6 address, which a customer has as a whole. */
function subnet64(address: Address): string {
  return `${textOf([...address.slice(0, 8), 0, 0, 0, 0, 0, 0, 0, 0])}/64`;
}

/** Returns an address of IPv6 as RFC 5952 writes it. */
function textOf(address: Address): string {
  const groups = address.flatMap((byte, i) =>
    i % 2 === 0 ? [((byte << 8) | (address[i + 1] ?? 0)).toString(16)] : [],
  );
  const text = groups.join(":");
  const zeros = [...text.matchAll(/(?<![^:])0(:0)+(?![^:])/g)].sort((a, b) => b[0].length - a[0].length)[0];
  if (zeros === undefined) {
    return text;
  }
  const end = zeros.index + zeros[0].length;
  return `${text.slice(0, zeros.index).replace(/:$/, "")}::${text.slice(end).replace(/^:/, "")}`;
}

function sameBits(a: Address, b: Address, bits: number): boolean {
  return a.every((byte, i) => ((byte ^ (b[i] ?? 0)) & maskOf(i, bits)) === 0);
}

/** Returns the bits of the i-th byte that are within a prefix. */
function maskOf(i: number, bits: number): number {
  return (0xff00 >> Math.max(0, Math.min(8, bits - 8 * i))) & 0xff;
}
