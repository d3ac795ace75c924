import assert from "node:assert/strict";
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { after, before, describe, test } from "node:test";
import { Service, Web } from "./service.js";
import { type Case, clientOf, play, readCases, type Scripted } from "./suite.js";

let service: Service;
before(async () => {
  service = await Service.start();
});
after(() => service.kill());

for (const file of ["calls", "errors", "together", "operators", "unavailable", "wait"]) {
  describe(file, () => {
    for (const c of readCases(file)) {
      test(c.name, () => run(c));
    }
  });
}

async function run(c: Case): Promise<void> {
  if (c.service === undefined) {
    const client = clientOf(service.url, c);
    await play(client, c);
    await client.close();
    return;
  }
  let requests = 0;
  const other = await Web.serve((request, response) => {
    answer(c.service, requests++, request, response);
  });
  if (c.service === "none") {
    await other.close();
  }
  let told = 0;
  const client = clientOf(other.url, c, { onFailedOpen: () => told++ });
  try {
    await play(client, c);
  } finally {
    if (c.service !== "none") {
      await other.close();
    }
  }
  if (c.requests !== undefined) {
    assert.equal(requests, c.requests);
  }
  if (c.failed_open !== undefined) {
    assert.equal(client.failedOpen, c.failed_open);
    assert.equal(told, c.failed_open);
  }
}

function answer(script: Case["service"], n: number, ...[request, response]: Parameters<RequestListener>): void {
  if (!Array.isArray(script)) {
    return; // it is silent
  }
  const next = script[Math.min(n, script.length - 1)];
  if (next === "cut") {
    request.socket.destroy();
    return;
  }
  send(next as Scripted, request, response);
}

function send({ status, headers, body }: Scripted, request: IncomingMessage, response: ServerResponse): void {
  request.resume();
  response.writeHead(status, headers);
  response.end(typeof body === "string" ? body : JSON.stringify(body));
}
