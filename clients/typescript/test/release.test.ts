/** Units under concurrent limits count only while a request is under way. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, createServer as createServerOfHttp2 } from "node:http2";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { getRequestListener } from "@hono/node-server";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import Koa from "koa";
import koaConnect from "koa-connect";
import { Client } from "ratelimitd";
import * as onExpress from "ratelimitd/express";
import * as onFastify from "ratelimitd/fastify";
import * as onHono from "ratelimitd/hono";
import * as onNext from "ratelimitd/next";
import { Service, Web } from "./service.js";

const express4 = createRequire(import.meta.url)("express4") as typeof express;
const quiet = { info: () => {}, error: () => {} };
const patienceMs = 30_000;

let service: Service;
let client: Client;
before(async () => {
  service = await Service.start();
  client = new Client(service.url, { timeoutMs: 20_000, logger: quiet });
});
after(() => service.kill());

/** The caller of a test, who has one unit. */
let caller: string;
beforeEach(() => {
  caller = randomUUID();
});

const isFree = async () => (await client.check({ policy: "slots", identifier: caller })).allowed;

async function mustBeFreeSoon(): Promise<void> {
  const until = Date.now() + patienceMs;
  while (!(await isFree())) {
    assert.ok(Date.now() < until, "it is not released");
    await sleep(10);
  }
}

/** The text of an answer. A stream sends it in two parts, the second once the test has read the first. */
const text = async () => ((await isFree()) ? "free " : "held ");
let goOn: () => void = () => {};
async function* parts(): AsyncGenerator<string> {
  const going = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  yield await text();
  await going;
  yield await text();
}

async function fail(): Promise<never> {
  throw new Error(await text());
}

function streamOfParts(): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const source = parts();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await source.next();
      if (done) {
        controller.close();
      } else {
        controller.enqueue(encoder.encode(value));
      }
    },
  });
}

interface NodeAnswer {
  write(text: string): unknown;
  end(): unknown;
}

async function stream(response: NodeAnswer): Promise<void> {
  for await (const part of parts()) {
    response.write(part);
  }
  response.end();
}

/** Headers with which Hono's server for Node sends an answer before its end. */
const streamed = { "Content-Type": "application/octet-stream" };

const options = () => ({ by: () => caller, logger: quiet });

/** Starts an app of a framework. Its `errors` are those of handlers. */
const frameworks: Record<string, (errors: unknown[]) => Promise<Web>> = {
  "express 5": (errors) => ofExpress(express(), errors),
  "express 4": (errors) => ofExpress(express4(), errors),
  koa: (errors) => {
    const app = new Koa();
    app.on("error", (error) => errors.push(error));
    app.use(koaConnect(onExpress.limiter(client, options())("slots")));
    app.use(async (context) => {
      if (context.path === "/throws") {
        await fail();
      } else if (context.path === "/streams") {
        context.respond = false;
        context.res.statusCode = 200;
        await stream(context.res);
      } else {
        context.body = await text();
      }
    });
    return Web.serve(app.callback());
  },
  node: (errors) => {
    const logger = { info: () => {}, error: (line: string) => errors.push(line) };
    const limit = onExpress.limiter(client, { ...options(), logger })("slots");
    return Web.serve((request, response) =>
      limit(request, response, async () => {
        if (request.url === "/throws") {
          await fail();
        } else if (request.url === "/streams") {
          await stream(response);
        } else {
          response.end(await text());
        }
      }),
    );
  },
  fastify: async (errors) => {
    const app = fastify();
    const limit = { onRequest: onFastify.limiter(client, options())("slots") };
    app.get("/returns", limit, text);
    app.get("/streams", limit, async (_, reply) => stream(reply.hijack().raw));
    app.addHook("onError", async (_request, _reply, error) => void errors.push(error));
    app.get("/throws", limit, fail);
    await app.ready();
    return Web.serve(app.server);
  },
  hono: (errors) => {
    const app = new Hono();
    const limit = onHono.limiter(client, { ...options(), address: () => undefined });
    app.use(limit("slots"));
    app.onError((error, c) => {
      errors.push(error);
      return c.text("error", 500);
    });
    app.get("/returns", async (c) => c.text(await text()));
    app.get("/streams", (c) => c.body(streamOfParts(), 200, streamed));
    app.get("/throws", fail);
    return Web.serve(getRequestListener(app.fetch));
  },
  next: (errors) => {
    const limit = onNext.limiter(client, { ...options(), address: () => undefined });
    const handler = limit("slots", async (request) => {
      if (request.url.endsWith("/throws")) {
        await fail();
      }
      return request.url.endsWith("/streams")
        ? new Response(streamOfParts(), { headers: streamed })
        : new Response(await text());
    });
    const listener = getRequestListener(async (request) => {
      try {
        return await handler(request);
      } catch (error) {
        errors.push(error);
        return new Response("error", { status: 500 });
      }
    });
    return Web.serve(createServer(listener));
  },
};

function ofExpress(app: express.Express, errors: unknown[]): Promise<Web> {
  app.use(onExpress.limiter(client, options())("slots"));
  app.get("/returns", async (_, response) => {
    response.send(await text());
  });
  app.get("/streams", (_, response) => void stream(response));
  app.get("/throws", (_request, _response, next) => void fail().catch(next));
  const failed: express.ErrorRequestHandler = (error, _request, response, _next) => {
    errors.push(error);
    response.status(500).end();
  };
  app.use(failed);
  return Web.serve(app);
}

for (const [name, start] of Object.entries(frameworks)) {
  describe(name, () => {
    const errors: unknown[] = [];
    let web: Web;
    before(async () => {
      web = await start(errors);
    });
    after(() => web.close());

    test("a unit is released when the answer is sent", async () => {
      for (let i = 0; i < 2; i++) {
        const response = await fetch(`${web.url}/returns`);
        assert.equal(await response.text(), "held ");
        assert.equal(response.headers.get("RateLimit-Policy"), '"at-once";q=1;qu="concurrent-requests"');
        await mustBeFreeSoon();
      }
      assert.equal((await fetch(`${web.url}/returns`, { method: "HEAD" })).status, 200);
      await mustBeFreeSoon();
    });

    test("or at the end of a stream", async () => {
      const response = await fetch(`${web.url}/streams`);
      const reader = (response.body as ReadableStream<Uint8Array>).getReader();
      const part = async () => new TextDecoder().decode((await reader.read()).value);
      assert.equal(await part(), "held ");
      assert.equal(await isFree(), false);
      goOn();
      assert.equal(await part(), "held ");
      assert.equal((await reader.read()).done, true);
      await mustBeFreeSoon();
    });

    test("or when the client goes away", async () => {
      const abort = new AbortController();
      const response = await fetch(`${web.url}/streams`, { signal: abort.signal });
      await response.body?.getReader().read();
      assert.equal(await isFree(), false);
      abort.abort();
      await mustBeFreeSoon();
      goOn();
    });

    test("or when the handler throws", async () => {
      assert.equal((await fetch(`${web.url}/throws`)).status, 500);
      assert.equal(errors.length, 1);
      await mustBeFreeSoon();
    });
  });
}

test("a unit is released at the end of an answer by HTTP/2", async () => {
  const limit = onExpress.limiter(client, options())("slots");
  const server = createServerOfHttp2((request, response) =>
    limit(request as never, response as never, async () => response.end(await text())),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  try {
    const answer = session.request().setEncoding("utf8");
    assert.deepEqual(await answer.toArray(), ["held "]);
    await mustBeFreeSoon();
  } finally {
    session.close();
    server.close();
  }
});

test("a unit is released if the answer was sent, or its client left, before the decision", async () => {
  const limit = onExpress.limiter(client, options())("slots");
  for (const over of [{ writableFinished: true }, { destroyed: true }, { stream: { destroyed: true } }]) {
    const response = { statusCode: 200, setHeader: () => {}, end: () => {}, ...over };
    await new Promise((next) => limit({}, response, next));
    await mustBeFreeSoon();
  }
});

test("a unit is released before the handler's error is passed on", async () => {
  const limit = onNext.limiter(client, { ...options(), address: () => undefined });
  await assert.rejects(async () => limit("slots", fail)(new Request("http://127.0.0.1/")), /held/);
  assert.equal(await isFree(), true);
});

test("a unit is released before a stream ends, fails or is cancelled", async () => {
  const limit = onNext.limiter(client, { ...options(), address: () => undefined });
  const broken = () => new ReadableStream({ pull: () => fail() });
  const read = (response: Response) => {
    goOn();
    return response.text();
  };
  for (const [made, end] of [
    [streamOfParts, read],
    [streamOfParts, (response: Response) => response.body?.cancel()],
    [broken, (response: Response) => assert.rejects(response.text(), /held/)],
  ] as const) {
    const response = await limit("slots", () => new Response(made()))(new Request("http://127.0.0.1/"));
    assert.equal(await isFree(), false);
    await end(response);
    assert.equal(await isFree(), true);
  }
});

test("Next's middleware does not see the end of a request that it passes on: the hold ends its units", async () => {
  const limit = onNext.limiter(client, { ...options(), address: () => undefined });
  const next = () => new Response(null, { headers: { "x-middleware-next": "1" } });
  await limit("slots", next)(new Request("http://127.0.0.1/"));
  assert.equal(await isFree(), false);
});

test("a failed release harms no request, and is reported", async () => {
  const lines: string[] = [];
  const logger = { info: () => {}, error: (line: string) => lines.push(line) };
  const own = await Service.start();
  const limit = onNext.limiter(new Client(own.url, { timeoutMs: 20_000, logger: quiet }), {
    ...options(),
    logger,
    address: () => undefined,
  });
  const handler = limit("slots", async () => {
    await own.kill();
    return new Response("served");
  });
  const response = await handler(new Request("http://127.0.0.1/"));
  assert.equal(await response.text(), "served");
  assert.match(lines.join("\n"), /units under concurrent limits count until their hold ends/);
});
