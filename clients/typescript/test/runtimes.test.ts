/** Runs the packed client in each runtime that it supports. workerd stands for edge runtimes. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Service, Web } from "./service.js";
import type { Urls } from "./smoke.js";

const build = dirname(fileURLToPath(import.meta.url));
const bin = "../node_modules/.bin";

describe("runtimes", () => {
  let service: Service;
  let silent: Web;
  let urls: Urls;

  before(async () => {
    service = await Service.start();
    silent = await Web.serve(() => {});
    const gone = await Web.serve(() => {});
    await gone.close();
    urls = { service: service.url, nobody: gone.url, silent: silent.url };
  });

  after(async () => {
    await service.kill();
    await silent.close();
  });

  const main = `${build}/smoke-main.js`;
  const args = () => [urls.service, urls.nobody, urls.silent];
  it("the oldest Node that package.json promises", () => {
    const { engines } = JSON.parse(readFileSync("node_modules/ratelimitd/package.json", "utf8"));
    assert.equal(engines.node, `>=${process.versions.node.split(".")[0]}`);
    return run(process.execPath, [main, ...args()]);
  });
  it("Node 24", () => run("npx", ["--yes", "--package", "node@24.9.0", "--", "node", main, ...args()]));
  it("Deno", () => run(`${bin}/deno`, ["run", "--allow-net", "--allow-env", main, ...args()]));
  it("Bun", () => run(`${bin}/bun`, [main, ...args()]));
  for (const date of ["2026-06-01", "2024-01-01"]) {
    it(`workerd of ${date}`, () => {
      const config = `${build}/smoke-${date}.capnp`;
      writeFileSync(config, worker(urls, date));
      return run(`${bin}/workerd`, ["test", config, "--import-path=/"]);
    });
  }
});

/** Runs a program, which fails if the smoke test does. */
async function run(program: string, args: readonly string[]): Promise<void> {
  await promisify(execFile)(program, args, { timeout: 120_000 });
}

/**
 * The configuration of a workerd with the client's modules, without Node's API. It can't distinguish a lost connection from
 * none. With older compatibility dates, fetch refuses the option `cache`.
 */
function worker(urls: Urls, date: string): string {
  const dist = `${process.cwd()}/node_modules/ratelimitd/dist`;
  const files = readdirSync(dist).filter((name) => name.endsWith(".js"));
  const test = `import { smoke } from "./smoke.js";\nexport default { test: () => smoke(${JSON.stringify(urls)}, "unknown") };`;
  const modules = [
    `(name = "main.js", esModule = ${JSON.stringify(test)})`,
    `(name = "smoke.js", esModule = embed "${build}/smoke.js")`,
    `(name = "ratelimitd", esModule = "export * from './dist/index.js';")`,
    ...files.map((name) => `(name = "dist/${name}", esModule = embed "${dist}/${name}")`),
  ];
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (services = [(name = "main", worker = .main), (name = "net", network = (allow = ["local"]))]);
const main :Workerd.Worker = (compatibilityDate = "${date}", globalOutbound = "net", modules = [${modules.join()}]);
`;
}
