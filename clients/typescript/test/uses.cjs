// Imports and requires all of the package from a project: uses.cjs FOLDER
const { createRequire } = require("node:module");
const { join, resolve } = require("node:path");
const { pathToFileURL } = require("node:url");

const require_ = createRequire(join(resolve(process.argv[2]), "main.js"));
const { exports: entries, version } = require_("ratelimitd/package.json");
const lock = require("../package-lock.json");
if (version !== lock.version || version !== lock.packages[""].version) {
  throw new Error(`package.json has version ${version} and package-lock.json ${lock.version}: run npm version`);
}
for (const [entry, { import: esm }] of Object.entries(entries).filter(([, conditions]) => conditions.import)) {
  const main = entry === "." ? "Client" : "limiter";
  const required = require_(join("ratelimitd", entry));
  const file = join(require_.resolve("ratelimitd/package.json"), "..", esm.default);
  import(pathToFileURL(file)).then((imported) => {
    if (typeof required[main] !== "function" || typeof imported[main] !== "function") {
      throw new Error(`${entry} has no ${main}`);
    }
  });
}
