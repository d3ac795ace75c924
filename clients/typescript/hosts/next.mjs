// Builds and serves an app of each Next that is supported, with the client that test/packed has packed, and asks it for pages.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const versions = { "14.2.35": "18.3.1", "15.5.29": "19.2.0", "16.4.6": "19.2.0" }; // and React's
const folder = fileURLToPath(new URL("../", import.meta.url));
const ratelimitd = process.env.RATELIMITD_BIN ?? `${folder}/../../bin/ratelimitd`;
const policies = `${folder}/../conformance/policies.yaml`;

const wanted = process.argv.slice(2); // such as 16.4.6; none: all
for (const [next, react] of Object.entries(versions).filter(([next]) => !wanted.length || wanted.includes(next))) {
  await check(next, react);
  console.log(`Next ${next}: page, route and middleware are limited, and nothing is cached`);
}

async function check(next, react) {
  const app = `${folder}/.packed/next-${next}`;
  rmSync(app, { recursive: true, force: true });
  mkdirSync(app, { recursive: true });
  cpSync(`${folder}/hosts/next`, app, { recursive: true });
  if (!next.startsWith("14.") && !next.startsWith("15.")) {
    renameSync(`${app}/middleware.js`, `${app}/proxy.js`);
  }
  const client = readdirSync(`${folder}/.packed`).find((name) => name.endsWith(".tgz"));
  const dependencies = { next, react, "react-dom": react, ratelimitd: `file:../${client}` };
  writeFileSync(`${app}/package.json`, JSON.stringify({ private: true, type: "module", dependencies }));
  const service = await serving(ratelimitd, ["serve", "--listen", "127.0.0.1:0", "--policies", policies], {});
  const env = { ...process.env, RATELIMITD_URL: service.url, NEXT_TELEMETRY_DISABLED: "1" };
  try {
    execFileSync("npm", ["install", "--silent", "--no-audit", "--no-fund", "--no-package-lock"], { cwd: app, env });
    execFileSync("node_modules/.bin/next", ["build"], { cwd: app, env, stdio: ["ignore", "pipe", "inherit"] });
    const args = ["node_modules/next/dist/bin/next", "start", "--hostname", "127.0.0.1", "--port", "0"];
    const server = await serving(process.execPath, args, { cwd: app, env });
    try {
      await ask(server.url);
    } finally {
      server.kill();
    }
  } finally {
    service.kill();
  }
}

/** Starts a server, and returns the URL that it says. */
async function serving(program, args, options) {
  const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface(child.stdout)) {
    const url = /http:\/\/[\w.]+:[1-9]\d*/.exec(line)?.[0];
    if (url !== undefined) {
      child.stdout.resume();
      return { url, kill: () => child.kill("SIGKILL") };
    }
  }
  throw new Error(`${program} ended before it listened`);
}

async function ask(url) {
  const used = async () => Number(/used (\d+)/.exec(await (await fetch(`${url}/`)).text())?.[1]);
  const first = await used();
  assert.deepEqual([await used(), await used()], [first + 1, first + 2], "a page takes at each request");
  for (const [path, address] of [
    ["/limited", "203.0.113.1"],
    ["/guarded", "203.0.113.2"],
  ]) {
    const answers = [];
    for (let i = 0; i < 3; i++) {
      answers.push(await fetch(url + path, { headers: { "X-Real-IP": address } }));
    }
    assert.deepEqual(
      answers.map((answer) => [answer.status, answer.headers.get("X-RateLimit-Remaining")]),
      [
        [200, "1"],
        [200, "0"],
        [429, "0"],
      ],
      path,
    );
    assert.equal((await answers[2].json()).title, "Quota Exceeded", path);
  }
}
