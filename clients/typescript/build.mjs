// Compiles src into dist, for import and for require. The TypeScript of package.json may be missing, because npm packs a
// fresh clone, and links a folder, without its development dependencies.
import { execSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";

process.chdir(import.meta.dirname);
const { typescript } = JSON.parse(readFileSync("package.json", "utf8")).devDependencies;

// npx must not inherit npm's flags: `npm pack --dry-run` compiles, too.
const foreign = /^npm_config_(dry_run|global|location|omit|include|ignore_scripts|prefix|local_prefix|workspaces?)$/;
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !foreign.test(name)));

// The first run checks the types.
const cjs = "--noCheck --module commonjs --moduleResolution node10 --verbatimModuleSyntax false --outDir dist/cjs";

rmSync("dist", { recursive: true, force: true });
execSync(`npx --yes --package typescript@${typescript} --call "tsc && tsc ${cjs}"`, { stdio: ["ignore", 2, 2], env });
writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
