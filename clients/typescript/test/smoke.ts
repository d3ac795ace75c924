/** Makes the calls that show that the client works in a runtime. It has only the dependencies of the client. */
import { Client, type ClientOptions, type Recorded, UnavailableError } from "ratelimitd";

export interface Urls {
  /** The URL of a ratelimitd with the suite's policies. */
  readonly service: string;
  /** A URL where no service listens. */
  readonly nobody: string;
  /** The URL of a service that never answers. */
  readonly silent: string;
}

const patient = { timeoutMs: 20_000 };
const hasty = { timeoutMs: 300 };

export async function smoke({ service, nobody, silent }: Urls, ofNobody: Recorded): Promise<void> {
  await decides(service);
  await failsClosed(nobody, patient, ofNobody);
  await failsOpen(nobody, patient);
  await failsClosed(silent, hasty, "unknown");
  await failsOpen(silent, hasty);
}

function clientOf(url: string, options: ClientOptions): Client {
  return new Client(url, { logger: { info: () => {}, error: () => {} }, ...options });
}

function demandOf(identifier: string) {
  return { policy: "sms-send", identifier };
}

async function decides(url: string): Promise<void> {
  const limits = clientOf(url, patient);
  const him = crypto.randomUUID();
  const taken = await limits.take({ ...demandOf(him), cost: 3 });
  assert(taken.allowed && taken.used === 3 && taken.receipt !== undefined, "a take");
  const denied = await limits.take(demandOf(him));
  assert(!denied.allowed && (denied.retryAfterMs ?? 0) > 0, "a denial");
  await limits.refund(taken.receipt ?? "");
  assert((await limits.take(demandOf(him))).allowed, "a take after a refund");
  const together = await Promise.all(Array.from({ length: 20 }, (_, i) => limits.take(demandOf(`${him} ${i}`))));
  assert(
    together.every((decision) => decision.allowed),
    "takes that share requests",
  );
  await limits.close();
}

async function failsClosed(url: string, options: ClientOptions, recorded: Recorded): Promise<void> {
  const error = await clientOf(url, options)
    .take(demandOf("a"))
    .catch((error) => error);
  assert(error instanceof UnavailableError && error.recorded === recorded, `failing closed: ${error}`);
}

async function failsOpen(url: string, options: ClientOptions): Promise<void> {
  const limits = clientOf(url, { ...options, onUnavailable: "fail-open" });
  const decision = await limits.take(demandOf("a"));
  assert(decision.allowed && decision.degraded && limits.failedOpen === 1, "failing open");
}

function assert(holds: boolean, what: string): void {
  if (!holds) {
    throw new Error(`${what} is not as it should be`);
  }
}
