import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { type Context, context, propagation, ROOT_CONTEXT, TraceFlags, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } from "@opentelemetry/core";
import { Client } from "ratelimitd";
import { Web } from "./service.js";

const demand = { policy: "sms-send", identifier: "somebody" };
const quiet = { info: () => {}, error: () => {} };
const hex = (n: number, length: number) => n.toString(16).padStart(length, "0");

/** A context with a span of its own and with baggage. */
function span(n: number, sampled: boolean): Context {
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE;
  const within = trace.setSpanContext(ROOT_CONTEXT, { traceId: hex(n, 32), spanId: hex(n, 16), traceFlags });
  return propagation.setBaggage(within, propagation.createBaggage({ user: { value: "somebody" } }));
}

function header(n: number, flags: string): string {
  return `00-${hex(n, 32)}-${hex(n, 16)}-${flags}`;
}

/** The example of the README. */
function traceContext() {
  const headers = {};
  propagation.inject(context.active(), headers);
  return headers;
}

describe("traces", () => {
  let service: Web;
  let limits: Client;
  let noted: (string | undefined)[] = [];
  let gate = Promise.resolve();
  let asked = () => {};

  before(async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    const propagators = [new W3CTraceContextPropagator(), new W3CBaggagePropagator()];
    propagation.setGlobalPropagator(new CompositePropagator({ propagators }));
    service = await Web.serve(async (request, response) => {
      assert.equal(request.headers.baggage, undefined);
      noted.push(request.headers.traceparent as string | undefined);
      asked();
      await gate;
      response.statusCode = 500;
      response.end();
    });
    const options = { logger: quiet, timeoutMs: 20_000, maxFailures: 1000, concurrency: 1 };
    limits = new Client(service.url, { ...options, traceContext });
  });

  beforeEach(() => {
    noted = [];
  });

  after(() => service.close());

  it("requests are in the caller's trace", async () => {
    const asks: (() => Promise<unknown>)[] = [
      () => limits.take(demand),
      () => limits.batch([{ op: "take", demands: [demand] }]),
      () => limits.confirm("r"),
      () => limits.refund("r"),
      () => limits.explain("sms-send", "somebody"),
    ];
    for (const ask of asks) {
      noted = [];
      for (const within of [span(0xa, true), span(0xb, false), ROOT_CONTEXT]) {
        await context.with(within, ask).catch(() => {});
      }
      assert.deepEqual(noted, [header(0xa, "01"), header(0xb, "00"), undefined]);
    }
  });

  for (const [calls, want] of [
    [[undefined, undefined], undefined],
    [[undefined, false, false], header(2, "00")],
    [[undefined, false, true, true], header(3, "01")],
    [[true, false, true], header(1, "01")],
  ] as const) {
    it(`a request of ${calls.length} is in the trace that is seen: ${want}`, async () => {
      let open = () => {};
      gate = new Promise((resolve) => {
        open = resolve;
      });
      const take = () => limits.take(demand).catch(() => {});
      const first = new Promise<void>((resolve) => {
        asked = resolve;
      });
      const all = [take()];
      await first;
      calls.forEach((sampled, i) => {
        all.push(sampled === undefined ? take() : context.with(span(i + 1, sampled), take));
      });
      open();
      await Promise.all(all);
      assert.deepEqual(noted, [undefined, want]);
    });
  }

  it("an invalid trace is not sent", async () => {
    for (const traceparent of ["", "a\nb", "00-1-2-01"]) {
      const odd = new Client(service.url, { logger: quiet, traceContext: () => ({ traceparent }) });
      await odd.take(demand).catch(() => {});
    }
    assert.deepEqual(noted, [undefined, undefined, undefined]);
  });
});
