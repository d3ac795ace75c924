// Imports and requires the whole package from a project, and checks the package's page on npm: uses.cjs FOLDER
const { readFileSync } = require("node:fs");
const { createRequire } = require("node:module");
const { join, resolve } = require("node:path");
const { pathToFileURL } = require("node:url");

const require_ = createRequire(join(resolve(process.argv[2]), "main.js"));
const { exports: entries, version, homepage, repository } = require_("ratelimitd/package.json");
const lock = require("../package-lock.json");
if (version !== lock.version || version !== lock.packages[""].version) {
  throw new Error(`package.json has version ${version} and package-lock.json ${lock.version}: run npm version`);
}
const page = repository.url.slice("git+".length, -".git".length);
if (!homepage.startsWith(page) || !homepage.includes(repository.directory)) {
  throw new Error(`homepage is ${homepage}: it must be the folder ${repository.directory} of ${repository.url}`);
}
const readme = readFileSync(join(require_.resolve("ratelimitd/package.json"), "..", "README.md"), "utf8");
const links = [...readme.matchAll(/\]\(([^)]+)\)/g)].map((match) => match[1]);
const relative = links.filter((link) => !/^(https:|#)/.test(link));
if (links.length === 0 || relative.length > 0) {
  throw new Error(`README.md leads to ${relative}: links must work outside of the repository`);
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
