/** Failures of middleware that the cases for all languages don't have. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { createServer, request as httpRequest, type IncomingMessage, type RequestListener } from "node:http";
import { connect, createServer as createServerOfHttp2 } from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import connectTimeout from "connect-timeout";
import express, { type Request as ExpressRequest, type Response as ExpressResponse, type NextFunction } from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { type Call, Client } from "ratelimitd";
import * as onExpress from "ratelimitd/express";
import * as onFastify from "ratelimitd/fastify";
import * as onHono from "ratelimitd/hono";
import * as onNext from "ratelimitd/next";
import serverless from "serverless-http";
import { Service, suiteDir, Web } from "./service.js";

const quiet = { info: () => {}, error: () => {} };
const fresh = () => ({ by: () => randomUUID() });

let service: Service;
let client: Client;
before(async () => {
  service = await Service.start();
  client = new Client(service.url, { timeoutMs: 20_000, logger: quiet });
});
after(() => service.kill());

/** A client without a service: `onUndecided` reports its calls. */
const nobody = new Client("http://127.0.0.1:1", { logger: quiet });

/** Serves while `use` runs. */
async function serving<T>(listener: RequestListener, use: (url: string) => Promise<T>): Promise<T> {
  const web = await Web.serve(listener);
  try {
    return await use(web.url);
  } finally {
    await web.close();
  }
}

async function get(url: string, init?: RequestInit): Promise<[status: number, body: string]> {
  const response = await fetch(url, init);
  return [response.status, await response.text()];
}

/** Returns an app of Express that limits by rules, and the errors that its error handler got. */
function expressApp(limit: onExpress.Middleware<ExpressRequest>, ...first: express.RequestHandler[]) {
  const app = express();
  const errors: Error[] = [];
  let served = 0;
  app.get("/", ...first, limit, (_, response) => {
    served++;
    if (response.headersSent) {
      response.end();
    } else {
      response.send("served");
    }
  });
  app.use((error: Error, _: ExpressRequest, response: ExpressResponse, _next: NextFunction) => {
    errors.push(error);
    if (!response.headersSent) {
      response.status(500);
    }
    response.end("error");
  });
  return { app, errors, served: () => served };
}

describe("an answer that is sent before the decision", () => {
  const answered: express.RequestHandler = (_, response, next) => {
    next();
    response.status(503).send("too late");
  };
  const begun: express.RequestHandler = (_, response, next) => {
    response.write("begun ");
    next();
  };
  const limits = () => onExpress.limiter<ExpressRequest>(client, fresh());

  for (const policy of ["web", "closed"]) {
    test(`stays as it is, under ${policy}`, async () => {
      const { app, errors, served } = expressApp(limits()(policy), answered);
      assert.deepEqual(await serving(app, (url) => get(url)), [503, "too late"]);
      await client.take({ policy: "web", identifier: randomUUID() }); // its answer comes after the other's
      assert.deepEqual(errors, []);
      assert.equal(served(), 0);
    });
  }

  test("is not changed after connect-timeout", async () => {
    const { promise: decided, resolve: decide } = withResolvers<void>();
    const silent = await Web.serve(() => {});
    const slow = new Client(silent.url, { timeoutMs: 400, logger: quiet });
    const limit = onExpress.limiter<ExpressRequest>(slow, { logger: quiet, onUndecided: () => decide() });
    const { app, errors, served } = expressApp(limit("web"), connectTimeout("50ms"));
    const answer = await serving(app, async (url) => {
      const answer = await get(url);
      await decided;
      return answer;
    });
    await silent.close();
    assert.deepEqual(answer, [500, "error"]);
    assert.match(String(errors), /^ServiceUnavailableError: Response timeout$/);
    assert.equal(served(), 0);
  });

  test("continues if it has begun and the request passes", async () => {
    const { app, errors } = expressApp(limits()("web"), begun);
    assert.deepEqual(await serving(app, (url) => get(url)), [200, "begun "]);
    assert.deepEqual(errors, []);
  });

  test("ends with an error if it has begun and the request is denied", async () => {
    const { app, errors, served } = expressApp(limits()("closed"), begun);
    assert.deepEqual(await serving(app, (url) => get(url)), [200, "begun error"]);
    assert.match(String(errors), /a 429 came too late/);
    assert.equal(served(), 0);
  });

  test("is not changed in Fastify", async () => {
    const app = fastify();
    const limit = onFastify.limiter(client, { by: () => randomUUID() });
    for (const policy of ["web", "closed"]) {
      app.get(`/sent/${policy}`, {
        onRequest: [
          async (_, reply) => {
            setImmediate(() => reply.raw.writableEnded || reply.raw.end("sent"));
          },
          limit(policy),
        ],
        handler: async () => "served",
      });
      app.get(`/hijacked/${policy}`, {
        onRequest: [
          async (_, reply) => {
            setImmediate(() => reply.hijack().raw.end("hijacked"));
          },
          limit(policy),
        ],
        handler: async () => "served",
      });
      app.get(`/begun/${policy}`, {
        onRequest: [
          async (_, reply) => {
            reply.raw.write("begun ");
          },
          limit(policy),
        ],
        handler: async (_, reply) => {
          reply.hijack().raw.end("served");
        },
      });
    }
    await app.ready();
    await serving(
      (request, response) => void app.routing(request, response),
      async (url) => {
        for (const policy of ["web", "closed"]) {
          assert.deepEqual(await get(`${url}/sent/${policy}`), [200, "sent"]);
          assert.deepEqual(await get(`${url}/hijacked/${policy}`), [200, "hijacked"]);
        }
        assert.deepEqual(await get(`${url}/begun/web`), [200, "begun served"]);
        await assert.rejects(get(`${url}/begun/closed`), "the connection ends");
        assert.deepEqual(await get(`${url}/sent/web`), [200, "sent"]);
      },
    );
  });
});

test("a client that disconnects before the decision does no harm", async () => {
  const { promise: asked, resolve: ask } = withResolvers<void>();
  const { promise: released, resolve: release } = withResolvers<void>();
  const { promise: ended, resolve: end } = withResolvers<void>();
  await serving(
    async (_, response) => {
      ask();
      await released;
      response.destroy();
    },
    async (slow) => {
      const limit = onExpress.limiter(new Client(slow, { logger: quiet }), { failClosed: true, logger: quiet })("web");
      const listener: RequestListener = (request, response) => {
        response.on("close", () => {
          release();
          setImmediate(end);
        });
        limit(request, response, () => assert.fail("it passes"));
      };
      await serving(listener, async (url) => {
        const abort = new AbortController();
        const answer = get(url, { signal: abort.signal });
        await asked;
        abort.abort();
        await assert.rejects(answer);
        await ended;
        assert.equal((await get(url)).at(0), 503);
      });
    },
  );
});

/** Options in which each callback throws or rejects, and the answer to a request then. */
const boom = () => {
  throw new TypeError("+4915112345678");
};
const reject = async () => boom();
const bad: [name: string, options: object, status: number][] = [
  ["by", { by: boom }, 500],
  ["by that rejects", { by: reject }, 500],
  ["by that returns no text", { by: () => 42 }, 500],
  ["cost", { cost: boom }, 500],
  ["cost that rejects", { cost: reject }, 500],
  ["cost that is no number", { cost: () => Number.NaN }, 500],
  ["cost that is a fraction", { cost: () => 1.5 }, 500],
  ["skip", { skip: boom }, 500],
  ["skip that rejects", { skip: reject }, 500],
  ["onUndecided", { onUndecided: boom }, 200],
  ["onUndecided that rejects", { onUndecided: reject }, 200],
  ["logger", { logger: { info: boom, error: boom } }, 200],
  ["logger that rejects", { logger: { info: reject, error: reject } }, 200],
];
const badOfWeb: typeof bad = [
  ["address", { address: boom }, 500],
  ["address that rejects", { address: reject }, 500],
];

/** Answers one request in each framework, with middleware that has no service. */
const frameworks: Record<string, (options: object) => Promise<number>> = {
  express: async (options) => {
    const { app } = expressApp(onExpress.limiter<ExpressRequest>(nobody, { logger: quiet, ...options })("web"));
    return (await serving(app, (url) => get(url)))[0];
  },
  node: async (options) => {
    const limit = onExpress.limiter(nobody, { logger: quiet, ...options })("web");
    const listener: RequestListener = (request, response) =>
      limit(request, response, (error) => {
        response.statusCode = error === undefined ? 200 : 500;
        response.end();
      });
    return (await serving(listener, (url) => get(url)))[0];
  },
  fastify: async (options) => {
    const app = fastify();
    app.get("/", { onRequest: onFastify.limiter(nobody, { logger: quiet, ...options })("web") }, async () => "served");
    return (await app.inject("/")).statusCode;
  },
  hono: async (options) => {
    const app = new Hono();
    app.onError((_, c) => c.text("error", 500));
    const limit = onHono.limiter(nobody, { logger: quiet, address: () => "192.0.2.1", ...options });
    app.get("/", limit("web"), (c) => c.text("served"));
    return (await app.request("/")).status;
  },
  next: async (options) => {
    const limit = onNext.limiter(nobody, { logger: quiet, address: () => "192.0.2.1", ...options });
    const handler = limit("web", () => new Response("served"));
    try {
      return (await handler(new Request("http://127.0.0.1/"))).status;
    } catch {
      return 500; // the status of Next's answer
    }
  },
};

describe("a callback that throws", () => {
  for (const [framework, answer] of Object.entries(frameworks)) {
    for (const [name, options, status] of [...bad, ...(["hono", "next"].includes(framework) ? badOfWeb : [])]) {
      test(`${framework}: ${name}`, async () => assert.equal(await answer(options), status));
    }
  }

  test("is reported without its message", async () => {
    const lines: string[] = [];
    const logger = { info: () => {}, error: (line: string) => lines.push(line) };
    await frameworks.node?.({ onUndecided: boom, logger });
    assert.equal(lines.filter((line) => line.includes("onUndecided threw TypeError")).length, 1);
    assert.doesNotMatch(lines.join("\n"), /\+49/);
  });

  test("of a client harms no call", async () => {
    const callbacks = { onFailedOpen: reject, traceContext: reject as never, logger: { info: reject, error: reject } };
    const throwing = { onFailedOpen: boom, traceContext: boom, logger: { info: boom, error: boom } };
    for (const options of [callbacks, throwing]) {
      const open = new Client("http://127.0.0.1:1", { onUnavailable: "fail-open", maxFailures: 1, ...options });
      for (let i = 0; i < 3; i++) {
        assert.equal((await open.take({ policy: "web", identifier: "a" })).degraded, true);
      }
      assert.equal(open.failedOpen, 3);
    }
  });

  test("may be the handler itself: the answer is 500, the error is reported, and it does not run again", async () => {
    for (const handler of [boom, reject]) {
      const lines: string[] = [];
      const logger = { info: () => {}, error: (line: string) => lines.push(line) };
      const limit = onExpress.limiter(client, { ...fresh(), logger })("web");
      let calls = 0;
      const listener: RequestListener = (request, response) =>
        limit(request, response, () => {
          calls++;
          return handler();
        });
      assert.deepEqual(await serving(listener, (url) => get(url)), [500, ""]);
      assert.equal(calls, 1);
      assert.match(lines.join("\n"), /a handler that runs after a limit threw TypeError\n +at /);
      assert.doesNotMatch(lines.join("\n"), /\+49/);
    }
  });
});

test("callbacks may return promises", async () => {
  const asked: Call[] = [];
  const onUndecided = (_: unknown, call: Call) => asked.push(call);
  const options = { by: async () => "alice", cost: async () => 7, skip: async () => false, onUndecided };
  for (const answer of Object.values(frameworks)) {
    assert.equal(await answer(options), 200);
  }
  const demand = { policy: "web", identifier: "alice", cost: 7 };
  assert.deepEqual(asked, Array(5).fill({ op: "take", demands: [demand] }));
});

test("a rule's limit is a function of the request", async () => {
  const asked: Call[] = [];
  const options = { by: () => "alice", onUndecided: (_: unknown, call: Call) => asked.push(call), logger: quiet };
  for (const units of [5000, undefined]) {
    const limit = onExpress.limiter(nobody, options)({ policy: "web", limit: async () => units });
    await serving(serve(limit), (url) => get(url));
  }
  const demand = { policy: "web", identifier: "alice", cost: 1 };
  assert.deepEqual(
    asked.map((call) => call.demands),
    [[{ ...demand, limit: 5000 }], [demand]],
  );
  assert.throws(
    () => onExpress.limiter(nobody, {})({ policy: "web", limit: 5 as never }),
    /limit is 5: it must be a function/,
  );
});

/** Returns the identifier of a request that `send` makes through the given middleware. */
async function identifierOf(
  options: onExpress.LimiterOptions<onExpressRequest>,
  send: (limit: onExpress.Middleware<onExpressRequest>) => Promise<unknown>,
): Promise<string | undefined> {
  let identifier: string | undefined;
  const onUndecided = (_: unknown, call: Call) => {
    identifier = call.demands?.[0]?.identifier;
  };
  await send(onExpress.limiter(nobody, { ...options, onUndecided, logger: quiet })("web"));
  return identifier;
}
type onExpressRequest = Parameters<onExpress.Middleware<IncomingMessage>>[0];

const serve = (limit: onExpress.Middleware<onExpressRequest>): RequestListener => {
  return (request, response) => limit(request, response, () => response.end());
};

describe("requests from other sources than Node's server", () => {
  test("inject of Fastify", async () => {
    const app = fastify();
    const limit = onFastify.limiter(client, { by: "api-key", trustedProxies: ["127.0.0.1"] });
    app.get("/", { onRequest: limit("web-user") }, async () => "served");
    const remaining = async (headers: Record<string, string | string[]>) =>
      (await app.inject({ url: "/", headers })).headers["x-ratelimit-remaining"];
    const [key, other] = [randomUUID(), randomUUID()];
    assert.equal(await remaining({ "x-api-key": key }), "1");
    assert.equal(await remaining({ "X-API-Key": key }), "0");
    assert.equal(await remaining({ "x-api-key": other }), "1");
    const address = `2001:db8:${randomUUID().slice(0, 4)}:${randomUUID().slice(0, 4)}::1`;
    assert.equal(await remaining({ "x-forwarded-for": address }), "1");
    assert.equal(await remaining({ "x-forwarded-for": address }), "0");
  });

  test("a function of AWS Lambda", async () => {
    const app = express();
    app.get("/", onExpress.limiter<ExpressRequest>(client, { by: "api-key" })("web-user"), (_, response) => {
      response.send("served");
    });
    const handler = serverless(app);
    const remaining = async (key: string) => {
      const event = {
        version: "2.0",
        routeKey: "$default",
        rawPath: "/",
        rawQueryString: "",
        headers: { "x-api-key": key },
        requestContext: { http: { method: "GET", path: "/", sourceIp: "203.0.113.5" } },
        isBase64Encoded: false,
      };
      const answer = (await handler(event, {})) as { headers: Record<string, string> };
      return answer.headers["x-ratelimit-remaining"];
    };
    const [key, other] = [randomUUID(), randomUUID()];
    assert.deepEqual([await remaining(key), await remaining(key), await remaining(other)], ["1", "0", "1"]);
  });

  test("a request without a connection, or with nothing at all", async () => {
    for (const request of [{ headers: {} }, { headers: {}, socket: null }, { socket: {} }, {}]) {
      const response = { statusCode: 200, setHeader: () => {}, end: () => {} };
      const ask = (limit: onExpress.Middleware<never>) =>
        new Promise((next) => limit(request as never, response, next));
      assert.equal(await identifierOf({}, ask as never), "unknown");
    }
  });

  test("HTTP/2", async () => {
    const identifier = await identifierOf({ by: "api-key" }, async (limit) => {
      const server = createServerOfHttp2((request, response) => serve(limit)(request as never, response as never));
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      const session = connect(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
      const stream = session.request({ "x-api-key": "k" });
      await once(stream, "response");
      stream.resume();
      await once(stream, "end");
      session.close();
      server.close();
    });
    assert.equal(identifier, "k");
  });
});

describe("headers", () => {
  const identified = (headers: [string, string][], change: (request: IncomingMessage) => void = () => {}) =>
    identifierOf({ by: "header:X-User" }, (limit) =>
      serving(
        (request, response) => {
          change(request);
          serve(limit)(request, response);
        },
        async (url) => {
          const request = httpRequest(url, { headers: headers.flat() as never });
          request.end();
          const [response] = await once(request, "response");
          response.resume();
          await once(response, "end");
        },
      ),
    );
  test("count in the form in which the application leaves them", async () => {
    const set = (request: IncomingMessage) => {
      request.headers["x-user"] = "verified";
    };
    const removed = (request: IncomingMessage) => {
      delete request.headers["x-user"];
    };
    const host: [string, string] = ["Host", "127.0.0.1"];
    assert.equal(await identified([host, ["X-User", "alice"]]), "alice");
    assert.equal(await identified([host, ["X-User", "forged"]], set), "verified");
    assert.equal(await identified([host, ["X-User", "forged"]], removed), "ip\n127.0.0.1");
    assert.equal(
      await identified([host, ["X-User", "a"], ["X-User", "b"]]),
      "ip\n127.0.0.1",
      "a header that came twice",
    );
  });
});

describe("addresses", () => {
  const table = JSON.parse(readFileSync(`${suiteDir}/addresses.json`, "utf8")) as Record<string, string>[];
  const forwarded = (trustedProxies: string[], forwardedFor: string, socket: object = { remoteAddress: "127.0.0.1" }) =>
    identifierOf({ trustedProxies }, (limit) => {
      const request = { headers: { "x-forwarded-for": forwardedFor }, socket };
      const response = { statusCode: 200, setHeader: () => {}, end: () => {} };
      return new Promise((next) => limit(request as never, response, next));
    });

  for (const { address = "", caller = "", why = "" } of table) {
    test(`${address} is ${caller}: ${why}`, async () => {
      assert.equal(await forwarded(["127.0.0.0/8"], address), caller);
      assert.equal(await forwarded([], "", { remoteAddress: address }), caller);
      const ofWeb = await new Promise<Call>((onUndecided) => {
        const options = { address: () => address, onUndecided: (_: unknown, call: Call) => onUndecided(call) };
        onNext.limiter(nobody, { ...options, logger: quiet })("web", () => new Response())(new Request("http://h/"));
      });
      assert.equal(ofWeb.demands?.[0]?.identifier, caller);
    });
  }

  test("the end of a tunnel gives no trust", async () => {
    for (const tunnel of ["2002:7f00:1::1", "64:ff9b::127.0.0.1", "2001::80ff:fffe", "::127.0.0.1"]) {
      const socket = { remoteAddress: tunnel };
      assert.equal(await forwarded(["127.0.0.0/8"], "203.0.113.7", socket), "127.0.0.1", tunnel);
    }
    assert.equal(await forwarded(["127.0.0.0/8"], "203.0.113.7", { remoteAddress: "::ffff:127.0.0.1" }), "203.0.113.7");
    assert.equal(await forwarded(["::ffff:127.0.0.0/104"], "203.0.113.7"), "203.0.113.7");
  });

  test("a unix socket is trusted by its name", async () => {
    const path = `${tmpdir()}/ratelimitd-${randomUUID()}.sock`;
    const byUnix = (trustedProxies: string[], forwardedFor: string) =>
      identifierOf({ trustedProxies }, async (limit) => {
        const server = createServer(serve(limit));
        server.listen(path);
        await once(server, "listening");
        const request = httpRequest({ agent: false, socketPath: path, headers: { "X-Forwarded-For": forwardedFor } });
        request.end();
        const [response] = await once(request, "response");
        response.resume();
        await once(response, "end");
        server.closeAllConnections();
        server.close();
        rmSync(path, { force: true });
      });
    assert.equal(await byUnix(["unix"], "203.0.113.7"), "203.0.113.7");
    assert.equal(await byUnix(["unix", "10.0.0.0/8"], "203.0.113.7, 198.51.100.1, 10.0.0.1"), "198.51.100.1");
    assert.equal(await byUnix(["unix"], "203.0.113.7, unix:"), "203.0.113.7", "as nginx writes one");
    assert.equal(await byUnix(["10.0.0.0/8"], "203.0.113.7"), "unknown");
  });

  test("a connection that has ended is not a unix socket", async () => {
    const ended = { remoteAddress: undefined, server: { address: () => ({ address: "127.0.0.1", port: 1 }) } };
    assert.equal(await forwarded(["unix"], "203.0.113.7", ended), "unknown");
  });

  test("an invalid proxy is refused", () => {
    const wrong = [
      "10.0.0.1/8",
      "10.0.0.0/33",
      "10.0.0.1:80",
      "host",
      "",
      "unix:",
      "::ffff:10.0.0.0/90",
      "10.0.0.0/8/8",
    ];
    for (const proxy of wrong) {
      assert.throws(
        () => onExpress.limiter(nobody, { trustedProxies: [proxy] }),
        /trustedProxies .*10\.0\.0\.0\/8/,
        proxy,
      );
    }
    assert.throws(
      () => onExpress.limiter(nobody, { trustedProxies: "unix" as never }),
      /trustedProxies must be a list/,
    );
  });
});

test("wrong rules are refused before any request", () => {
  const limit = onExpress.limiter(nobody);
  for (const cost of [Number.NaN, 1.5, "2" as never]) {
    assert.throws(() => limit({ policy: "web", cost }), /cost is/);
    assert.throws(() => onExpress.limiter(nobody, { cost }), /cost is/);
  }
  for (const by of ["apikey", "header:", "header:a b", "", 7]) {
    assert.throws(() => limit({ policy: "web", by: by as never }), /by is .*header:NAME/);
    assert.throws(() => onExpress.limiter(nobody, { by: by as never }), /by is .*header:NAME/);
  }
  assert.throws(() => limit(""), /policy is empty/);
  assert.throws(() => limit(undefined as never), TypeError);
});

test("the answer of an upgrade is not changed", async () => {
  const upgrade = { status: 101, headers: new Headers(), body: null, bodyUsed: false } as Response; // as in Deno
  const limit = onNext.limiter(client, { ...fresh(), address: () => undefined });
  assert.equal(await limit("web", () => upgrade)(new Request("http://127.0.0.1/")), upgrade);
  const app = new Hono();
  app.get("/", onHono.limiter(client, { ...fresh(), address: () => undefined })("web"), () => upgrade);
  assert.equal(await app.request("/"), upgrade);
});

function withResolvers<T>() {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((r) => {
    resolve = r;
  });
  return { promise, resolve };
}
