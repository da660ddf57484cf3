// The rules of WCAG, checked in a page.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";

const AXE = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Fails with the rules of WCAG 2.2 AA that a page breaks. */
export async function isAccessible(page, what) {
  // By the debugger's way into the page, which the policy of the page does not concern.
  await page.evaluate(AXE);
  const found = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  const problems = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" | ")}`);
  assert.deepEqual(problems, [], what);
}
