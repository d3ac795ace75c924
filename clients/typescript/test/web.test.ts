/** Plays the suite's cases of middleware on every framework that has an adapter. */
import assert from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { createServer, type RequestListener } from "node:http";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { getRequestListener } from "@hono/node-server";
import { getConnInfo } from "@hono/node-server/conninfo";
import "reflect-metadata";
import type { MiddlewareConsumer } from "@nestjs/common";
import * as Nest from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
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
import { readCases } from "./suite.js";

const express4 = createRequire(import.meta.url)("express4") as typeof express;

interface WebRequest {
  path: string;
  method?: string;
  headers?: Record<string, string>;
  expect: { status?: number; headers?: Record<string, string | null>; body?: Record<string, unknown> };
}

interface WebCase {
  name: string;
  service?: "none";
  fail_closed?: boolean;
  requests: WebRequest[];
  undecided?: number;
}

/** The rules of each path. */
const routes = {
  "/": "web",
  "/closed": "closed",
  "/user": { policy: "web-user", by: "header:X-User" },
  "/by-address": "web-user",
  "/both": ["web", { policy: "web-user", by: "header:X-User" }],
  "/customer": { policy: "customers", by: "header:X-User" },
  "/gold": { policy: "customers", by: "header:X-User", limit: () => 3 },
  "/phone": { policy: "phone", by: "header:X-Phone" },
  "/big": { policy: "bytes", cost: 101 },
  "/unknown": "no-such",
} as const;
const entries = Object.entries(routes);

interface Told {
  trustedProxies: string[];
  failClosed: boolean;
  onUndecided: () => void;
  logger: { info: () => void; error: () => void };
}

/** Starts an app of a framework, whose handlers answer "served". */
const frameworks: Record<string, (client: Client, options: Told) => Promise<Web>> = {
  "express 5": (client, options) => ofExpress(express(), client, options),
  "express 4": (client, options) => ofExpress(express4(), client, options),
  koa: (client, options) => {
    const app = new Koa();
    const limit = onExpress.limiter(client, options);
    const limits = new Map(entries.map(([path, rules]) => [path, koaConnect(limit(rules))]));
    app.use((context, next) => limits.get(context.path)?.(context, next));
    app.use((context) => {
      context.body = served(onExpress.decisionOf(context.req));
    });
    return Web.serve(app.callback());
  },
  nest: async (client, options) => {
    const limit = onExpress.limiter<express.Request>(client, options);
    class Pages {
      serve(request: express.Request): string {
        return served(onExpress.decisionOf(request));
      }
    }
    class Module {
      configure(consumer: MiddlewareConsumer): void {
        for (const [path, rules] of entries) {
          consumer.apply(limit(rules)).forRoutes({ path, method: Nest.RequestMethod.ALL });
        }
      }
    }
    // Like decorators, which this build does not have.
    Nest.Controller()(Pages);
    Nest.Req()(Pages.prototype, "serve", 0);
    const serve = Object.getOwnPropertyDescriptor(Pages.prototype, "serve") as PropertyDescriptor;
    Nest.HttpCode(200)(Pages.prototype, "serve", serve);
    Nest.All(entries.map(([path]) => path))(Pages.prototype, "serve", serve);
    Nest.Module({ controllers: [Pages] })(Module);
    const app = await NestFactory.create(Module, { logger: false });
    await app.init();
    return Web.serve(app.getHttpAdapter().getInstance());
  },
  fastify: async (client, options) => {
    const app = fastify();
    const limit = onFastify.limiter(client, options);
    for (const [path, rules] of entries) {
      app.all(path, { onRequest: limit(rules) }, async (request) => served(onFastify.decisionOf(request)));
    }
    await app.ready();
    return Web.serve(app.server);
  },
  hono: (client, options) => {
    const app = new Hono();
    const limit = onHono.limiter(client, { ...options, address: (c) => getConnInfo(c as never).remote.address });
    for (const [path, rules] of entries) {
      app.all(path, limit(rules), (c) => c.text(served(onHono.decisionOf(c))));
    }
    return Web.serve(getRequestListener(app.fetch));
  },
  next: (client, options) => {
    const limit = onNext.limiter(client, { ...options, address: () => "127.0.0.1" });
    const handlers = new Map(
      entries.map(([path, rules]) => [
        path,
        limit(rules, async (request) => new Response(served(onNext.decisionOf(request)))),
      ]),
    );
    const listener = getRequestListener(async (request) => {
      const handler = handlers.get(new URL(request.url).pathname);
      return handler === undefined ? new Response(null, { status: 404 }) : handler(request);
    });
    return Web.serve(createServer(listener));
  },
};

function ofExpress(app: Pick<express.Express, "all"> & RequestListener, client: Client, options: Told): Promise<Web> {
  const limit = onExpress.limiter(client, options);
  for (const [path, rules] of entries) {
    app.all(path, limit(rules), (request, response) => {
      response.send(served(onExpress.decisionOf(request)));
    });
  }
  return Web.serve(app);
}

function served(decision: { receipt?: string } | undefined): string {
  return decision?.receipt === undefined ? "served, undecided" : "served";
}

let service: Service;
before(async () => {
  service = await Service.start();
});
after(() => service.kill());

for (const [name, start] of Object.entries(frameworks)) {
  describe(name, () => {
    for (const c of readCases<WebCase>("web")) {
      test(c.name, () => unhurried(() => run(c, start)));
    }
  });
}

/** Repeats a case that failed and took long, because it expects waits of whole seconds after its first request. */
async function unhurried(play: () => Promise<void>, more = 2): Promise<void> {
  const began = Date.now();
  try {
    await play();
  } catch (error) {
    if (more === 0 || Date.now() - began < 500) {
      throw error;
    }
    await unhurried(play, more - 1);
  }
}

async function run(c: WebCase, start: (client: Client, options: Told) => Promise<Web>): Promise<void> {
  const quiet = { info: () => {}, error: () => {} };
  const nobody = "http://127.0.0.1:1";
  const client = new Client(c.service === "none" ? nobody : service.url, { timeoutMs: 20_000, logger: quiet });
  let undecided = 0;
  const web = await start(client, {
    trustedProxies: ["127.0.0.0/8", "::1"],
    failClosed: c.fail_closed ?? false,
    onUndecided: () => undecided++,
    logger: quiet,
  });
  try {
    const named = names();
    for (const [i, request] of c.requests.entries()) {
      await ask(web.url, request, named, `request ${i + 1}`);
    }
    assert.equal(undecided, c.undecided ?? 0);
  } finally {
    await web.close();
  }
}

/** Returns the value of `$name`: an address, a subnet or a name of this case alone. */
function names(): (text: string) => string {
  const byte = () => randomInt(256);
  const group = () => (0x1000 + randomInt(0xefff)).toString(16);
  const values = new Map([
    ["address", `10.${byte()}.${byte()}.${byte()}`],
    ["subnet", `2001:db8:${group()}:${group()}`],
  ]);
  const suffix = randomUUID();
  return (text) => text.replace(/\$(\w+)/g, (_, name: string) => values.get(name) ?? `${name}-${suffix}`);
}

async function ask(url: string, request: WebRequest, named: (text: string) => string, where: string): Promise<void> {
  const headers = Object.entries(request.headers ?? {}).map(
    ([name, value]) => [name, named(value)] as [string, string],
  );
  const response = await fetch(url + request.path, { method: request.method ?? "GET", headers });
  const body = await response.text();
  const { expect } = request;
  if (expect.status !== undefined) {
    assert.equal(response.status, expect.status, `${where}: ${body}`);
  }
  for (const [name, value] of Object.entries(expect.headers ?? {})) {
    assert.equal(response.headers.get(name), value, `${where}: ${name}`);
  }
  for (const [name, value] of Object.entries(expect.body ?? {})) {
    assert.equal(JSON.parse(body)[name], value, `${where}: ${body}`);
  }
  if (response.status === 200) {
    const decided = response.headers.has("X-RateLimit-Limit");
    assert.equal(body, decided ? "served" : "served, undecided", where);
  }
}
