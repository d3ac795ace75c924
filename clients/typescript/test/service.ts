/** The services of the tests: ratelimitd itself, and others in its place. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const suite = process.env.RATELIMITD_CONFORMANCE;
const binary = process.env.RATELIMITD_BIN;
if (suite === undefined || binary === undefined) {
  throw new Error("RATELIMITD_CONFORMANCE and RATELIMITD_BIN must name the suite and the program: run `make clients`");
}

/** The folder of the conformance suite. */
export const suiteDir = suite;

/** A ratelimitd of the suite's policies. */
export class Service {
  #process: ChildProcess | undefined;

  private constructor(
    readonly url: string,
    process: ChildProcess,
    readonly flags: readonly string[],
  ) {
    this.#process = process;
  }

  static async start(...flags: string[]): Promise<Service> {
    const [url, process] = await serve("127.0.0.1:0", flags);
    return new Service(url, process, flags);
  }

  /** Kills the process, like a crash. */
  async kill(): Promise<void> {
    const process = this.#process;
    if (process !== undefined) {
      this.#process = undefined;
      const ended = once(process, "exit");
      process.kill("SIGKILL");
      await ended;
    }
  }

  /** Starts it again at the same address. */
  async restart(): Promise<void> {
    [, this.#process] = await serve(new URL(this.url).host, this.flags);
  }

  /** Stops the process, and resolves once it has stopped: its threads run for a while after the signal. */
  async pause(): Promise<void> {
    const process = this.#process;
    process?.kill("SIGSTOP");
    while (process?.pid !== undefined && !(await isStopped(process.pid))) await sleep(1);
  }

  resume(): void {
    this.#process?.kill("SIGCONT");
  }
}

/** Reports whether all threads of a process are stopped. */
async function isStopped(pid: number): Promise<boolean> {
  const threads = await readdir(`/proc/${pid}/task`);
  const stats = threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "utf8").catch(() => "")); // it ended
  return (await Promise.all(stats)).every((stat) => stat.includes(") T "));
}

async function serve(address: string, flags: readonly string[]): Promise<[string, ChildProcess]> {
  const args = ["serve", "--listen", address, "--policies", `${suite}/policies.yaml`, ...flags];
  const child = spawn(binary as string, args, { stdio: ["ignore", "pipe", "ignore"] });
  for await (const line of createInterface(child.stdout)) {
    const url = /^listening on (http:\S+)$/.exec(line)?.[1];
    if (url !== undefined) {
      return [url, child];
    }
  }
  throw new Error("ratelimitd ended before it listened");
}

/** An HTTP server within this process. */
export class Web {
  private constructor(
    readonly url: string,
    readonly server: Server,
  ) {}

  static async serve(server: RequestListener | Server): Promise<Web> {
    const web = typeof server === "function" ? createServer(server) : server;
    web.listen(0, "127.0.0.1");
    await once(web, "listening");
    return new Web(`http://127.0.0.1:${(web.address() as AddressInfo).port}`, web);
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, "close");
  }
}
