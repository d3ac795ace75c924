/** Runs the smoke test by the URLs of the command line, in Node, Deno and Bun. */
import { smoke } from "./smoke.js";

const [service = "", nobody = "", silent = ""] = process.argv.slice(2);
await smoke({ service, nobody, silent }, "no");
