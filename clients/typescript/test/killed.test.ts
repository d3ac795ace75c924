import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { CallError, Client, UnavailableError } from "ratelimitd";
import { Service, Web } from "./service.js";

const quiet = { info: () => {}, error: () => {} };

/** Makes takes until `stopped`, and counts their outcomes. */
class Traffic {
  readonly counts = { allowed: 0, denied: 0, no: 0, unknown: 0 };
  slowestMs = 0;
  #stopped = false;

  constructor(
    readonly client: Client,
    readonly identifier: string,
  ) {}

  async callers(n: number): Promise<void> {
    await Promise.all(Array.from({ length: n }, () => this.#caller()));
  }

  stop(): void {
    this.#stopped = true;
  }

  async #caller(): Promise<void> {
    while (!this.#stopped) {
      const began = performance.now();
      this.counts[await this.#take()]++;
      this.slowestMs = Math.max(this.slowestMs, performance.now() - began);
      await sleep(5);
    }
  }

  async #take(): Promise<keyof Traffic["counts"]> {
    try {
      const decision = await this.client.take({ policy: "chaos", identifier: this.identifier });
      return decision.allowed ? "allowed" : "denied";
    } catch (error) {
      assert.ok(error instanceof UnavailableError, String(error));
      return error.recorded === "unknown" ? "unknown" : "no";
    }
  }
}

test("a slow server: calls end in time, and none counts twice", async () => {
  const service = await Service.start();
  const client = new Client(service.url, { timeoutMs: 400, retries: 2, logger: quiet });
  const traffic = new Traffic(client, "slowed");
  const callers = traffic.callers(20);
  try {
    for (let i = 0; i < 3; i++) {
      await service.pause();
      await sleep(700);
      service.resume();
      await sleep(300);
    }
    const until = performance.now() + 20_000; // a probe finds that it is back
    while (traffic.counts.denied === 0 && performance.now() < until) await sleep(50);
    traffic.stop();
    await callers;
    const { allowed, denied, unknown } = traffic.counts;
    assert.ok(unknown > 0, "the pauses were not felt");
    assert.ok(denied > 0, "the limit was not met, or nobody was decided again");
    assert.ok(allowed <= 200, `${allowed} of 200 passed`);
    assert.ok(allowed + unknown >= 200, `${allowed} passed and ${unknown} may have, of 200`);
    assert.ok(traffic.slowestMs < 5000, `a call of 400 ms took ${traffic.slowestMs}`);
  } finally {
    service.resume();
    await service.kill();
  }
});

test("a killed server: calls fail with the right errors until it is back, and are decided again", async () => {
  const service = await Service.start();
  const client = new Client(service.url, { timeoutMs: 1000, probeIntervalMs: 200, logger: quiet });
  const ask = (identifier: string) => client.take({ policy: "chaos", identifier });
  try {
    assert.equal((await ask("before")).used, 1);
    await service.kill();
    for (let i = 0; i < 20; i++) {
      const error = await ask("meanwhile").catch((e) => e);
      assert.ok(error instanceof UnavailableError, String(error));
      assert.ok(!error.message.includes("meanwhile"), error.message);
    }
    await service.restart();
    const until = performance.now() + 20_000;
    let decision = await ask("after").catch(() => undefined);
    while (decision === undefined && performance.now() < until) {
      await sleep(50);
      decision = await ask("after").catch(() => undefined);
    }
    assert.equal(decision?.allowed, true);
    assert.equal(decision?.degraded, false);
  } finally {
    await service.kill();
  }
});

test("a caller that aborts learns whether its call may count", async () => {
  const silent = await Web.serve(() => {});
  const client = new Client(silent.url, { timeoutMs: 20_000 });
  const take = (signal: AbortSignal) => client.take({ policy: "chaos", identifier: "a" }, { signal }).catch((e) => e);
  try {
    const reason = new Error("gone");
    const early = await take(AbortSignal.abort(reason));
    assert.ok(early instanceof CallError && early.name === "AbortError", String(early));
    assert.equal(early.recorded, "no");
    assert.equal(early.cause, reason);
    const late = await take(AbortSignal.timeout(100));
    assert.equal(late.name, "AbortError");
    assert.equal(late.recorded, "unknown");
  } finally {
    await silent.close();
  }
});
