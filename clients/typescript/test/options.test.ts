import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Client, type ClientOptions, InvalidCallError, UnavailableError } from "ratelimitd";
import { limiter } from "ratelimitd/next";
import { Service } from "./service.js";

const quiet = { info: () => {}, error: () => {} };
const url = "http://127.0.0.1:1";

describe("options", () => {
  const wrong: Record<string, unknown[]> = {
    timeoutMs: [Number.NaN, 0, -1, 2 ** 31, Number.POSITIVE_INFINITY, "2000", null],
    probeIntervalMs: [Number.NaN, 0, -1, 2 ** 31, Number.POSITIVE_INFINITY, "1000"],
    retries: [Number.NaN, -1, 1.5, Number.POSITIVE_INFINITY, "1"],
    concurrency: [Number.NaN, 0, -1, 1.5, Number.POSITIVE_INFINITY],
    maxFailures: [Number.NaN, 0, -1, 1.5, Number.POSITIVE_INFINITY],
    onUnavailable: ["open"],
  };
  for (const [name, values] of Object.entries(wrong)) {
    for (const value of values) {
      test(`${name} is not ${typeof value === "string" ? `"${value}"` : value}`, () => {
        const message = new RegExp(`${name} is ${value}: it must be .*(milliseconds|number|fail-open)`);
        assert.throws(() => new Client(url, { [name]: value }), { name: "RangeError", message });
      });
    }
  }

  test("may have the longest time of timers", async () => {
    const options = { timeoutMs: 2 ** 31 - 1, probeIntervalMs: 2 ** 31 - 1, logger: quiet };
    await assert.rejects(new Client(url, options).take({ policy: "a", identifier: "b" }), {
      name: "UnavailableError",
      message: /^(?!.*the time of timeoutMs)/,
    });
  });

  test("that are undefined have defaults", async () => {
    const names = ["timeoutMs", "retries", "maxFailures", "fetch", "headers", "onUnavailable", "onFailedOpen"];
    const unset = Object.fromEntries(names.map((name) => [name, undefined])) as ClientOptions;
    const client = new Client(url, { ...unset, logger: quiet });
    await assert.rejects(client.take({ policy: "a", identifier: "b" }), UnavailableError);
  });
});

test("a cost that JSON can't express is refused", async () => {
  const client = new Client(url);
  for (const cost of [Number.NaN, Number.POSITIVE_INFINITY, "2" as never]) {
    const demand = { policy: "a", identifier: "b" };
    await assert.rejects(client.take({ ...demand, cost }), (error) => {
      return error instanceof InvalidCallError && error.problem?.field === "cost";
    });
    await assert.rejects(client.take([demand, { ...demand, policy: "c", cost }]), (error) => {
      return error instanceof InvalidCallError && error.problem?.field === "demands[1].cost";
    });
  }
});

test("a limit that JSON can't express is refused", async () => {
  const client = new Client(url);
  for (const limit of [Number.NaN, Number.POSITIVE_INFINITY, "2" as never]) {
    const demand = { policy: "a", identifier: "b" };
    await assert.rejects(client.take([demand, { ...demand, policy: "c", limit }]), (error) => {
      return error instanceof InvalidCallError && error.problem?.field === "demands[1].limit";
    });
  }
});

describe("fetch", () => {
  let service: Service;
  before(async () => {
    service = await Service.start();
  });
  after(() => service.kill());

  test("that caches like Next's gives each call its own decision", async () => {
    const { fetch } = globalThis;
    const cache = new Map<string, Response>();
    globalThis.fetch = async (input, init) => {
      if (init?.cache === "no-store") {
        return fetch(input, init);
      }
      const key = JSON.stringify([input, init?.method, init?.body]);
      const response = cache.get(key) ?? (await fetch(input, init));
      cache.set(key, response);
      return response.clone();
    };
    try {
      const client = new Client(service.url, { logger: quiet, timeoutMs: 20_000 });
      const demand = { policy: "sms-send", identifier: randomUUID() };
      const used = [await client.take(demand), await client.take(demand)].map((decision) => decision.used);
      assert.deepEqual(used, [1, 2]);
      assert.equal((await client.explain("sms-send", demand.identifier)).limits[0]?.used, 2);
      await client.take(demand);
      assert.equal((await client.explain("sms-send", demand.identifier)).limits[0]?.used, 3);
    } finally {
      globalThis.fetch = fetch;
    }
  });

  test("that throws Next's own errors passes them on, even if the client fails open", async () => {
    for (const onUnavailable of ["fail-closed", "fail-open"] as const) {
      const fetch = async () => {
        throw Object.assign(new Error("Dynamic server usage"), { digest: "DYNAMIC_SERVER_USAGE" });
      };
      const client = new Client(url, { fetch, onUnavailable, logger: quiet });
      await assert.rejects(client.take({ policy: "a", identifier: "b" }), { digest: "DYNAMIC_SERVER_USAGE" });
      assert.equal(client.failedOpen, 0);
      const handler = limiter(client, { address: () => "192.0.2.1", logger: quiet })("web", () => new Response());
      await assert.rejects(async () => handler(new Request("http://127.0.0.1/")), { digest: "DYNAMIC_SERVER_USAGE" });
    }
  });

  test("without a response gives no answer", async () => {
    for (const response of [undefined, null, {}]) {
      const fetch = async () => response as never;
      await assert.rejects(new Client(url, { fetch, logger: quiet }).take({ policy: "a", identifier: "b" }), {
        name: "UnavailableError",
        recorded: "unknown",
      });
    }
  });
});
