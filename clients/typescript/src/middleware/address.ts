/** Addresses of IP: whom a request comes from, behind proxies that are trusted. Needs nothing of any runtime. */

/** 4 or 16 bytes. */
type Address = readonly number[];

/** Networks, such as `10.0.0.0/8` or `192.0.2.7`. */
export class Networks {
  readonly #prefixes: readonly (readonly [address: Address, bits: number])[];

  constructor(texts: readonly string[]) {
    this.#prefixes = texts.map((text) => {
      const [address, bits = ""] = text.split("/");
      const parsed = parseAddress(address ?? "");
      const length = /^\d+$/.test(bits) ? Number(bits) : text.includes("/") ? Number.NaN : 128;
      if (parsed === undefined || !(length <= 128)) {
        throw new TypeError(`ratelimitd: ${text} is no address and no network: write such as 10.0.0.0/8 or 192.0.2.7`);
      }
      return [parsed, Math.min(length, 8 * parsed.length)] as const;
    });
  }

  has(address: Address): boolean {
    return this.#prefixes.some(([prefix, bits]) => prefix.length === address.length && sameBits(prefix, address, bits));
  }
}

/**
 * Returns the address that a request comes from: that of the connection or, while that is one of `trusted`, the one
 * that it forwards for. Of IPv6, a /64 is one client. `undefined`: a trusted proxy says something else than an address.
 */
export function clientAddress(
  connection: string,
  forwardedFor: readonly string[],
  trusted: Networks,
): string | undefined {
  let address = parseAddress(connection);
  if (address === undefined) {
    return connection; // of a socket that has none
  }
  const hops = forwardedFor.flatMap((line) => line.split(",")).map((hop) => hop.trim());
  for (const hop of hops.filter((h) => h !== "").reverse()) {
    if (!trusted.has(address)) {
      break;
    }
    address = parseAddress(hop);
    if (address === undefined) {
      return undefined;
    }
  }
  return address.length === 4 ? address.join(".") : subnet64(address);
}

/** Whether text could be what {@link clientAddress} returns. */
export function isAddress(text: string): boolean {
  return text === "@" || parseAddress(text.replace(/\/\d+$/, "")) !== undefined;
}

/** Reads an address with a port or without. */
function parseAddress(text: string): Address | undefined {
  const bracketed = /^\[(.*)\](:\d+)?$/.exec(text)?.[1];
  const bare = (bracketed ?? text.replace(/^([^:]*):\d+$/, "$1")).replace(/%.*$/, "");
  const v4 = parseV4(bare);
  if (v4 !== undefined) {
    return v4;
  }
  const v6 = parseV6(bare);
  const mapped = v6?.slice(0, 12).every((byte, i) => byte === (i < 10 ? 0 : 255));
  return mapped ? v6?.slice(12) : v6;
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

/** What a customer has of IPv6 addresses: one may use as many as they like of it. */
function subnet64(address: Address): string {
  const groups = [0, 2, 4, 6].map((i) => (((address[i] ?? 0) << 8) | (address[i + 1] ?? 0)).toString(16));
  while (groups.at(-1) === "0") {
    groups.pop();
  }
  return `${groups.join(":")}::/64`;
}

function sameBits(a: Address, b: Address, bits: number): boolean {
  return a.every((byte, i) => {
    const shift = 8 - Math.max(0, Math.min(8, bits - 8 * i));
    return byte >> shift === (b[i] ?? 0) >> shift;
  });
}
