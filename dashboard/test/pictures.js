// Takes the pictures of docs/operating/dashboard.md again, as WebP: half the size of PNG.

import fs from "node:fs";
import path from "node:path";
import { browser, open, Program, Target } from "./program.js";

const FOLDER = path.join(import.meta.dirname, "../../docs/pictures");
/** How long a run is watched before its picture is taken. */
const WATCHED_MS = 30_000;
const QUALITY = 0.85;

const [chromium, target] = await Promise.all([browser(), Target.start()]);
const program = await Program.start(`
sources:
  access: { generate: { lines: ['{"status": 200, "path": "/"}', '{"status": 500, "path": "/pay"}', '{"status": 404, "path": "/old"}', 'GET / HTTP/1.1'], count: 100000000, rate: 900 } }
  audit: { generate: { lines: ['{"user": "ada", "action": "login"}'], count: 100000000, rate: 60 } }
pipelines:
  web: { from: access, transforms: [parse_json, { filter: "status >= 404" }], to: archive }
  people: { from: audit, transforms: [parse_json], to: alarms }
sinks:
  archive: { file: { path: all.jsonl, encode: json, atomic: false } }
  alarms: { http: { url: "${target.url}", encode: json } }
`);

/** The picture of a page, made smaller by the browser itself. */
async function take(page, name) {
  await page.mouse.move(0, 0);
  const png = await page.screenshot();
  const blank = await page.context().newPage();
  const webp = await blank.evaluate(
    async ([data, quality]) => {
      const image = new Image();
      image.src = `data:image/png;base64,${data}`;
      await image.decode();
      const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
      canvas.getContext("2d").drawImage(image, 0, 0);
      return canvas.toDataURL("image/webp", quality).split(",")[1];
    },
    [png.toString("base64"), QUALITY],
  );
  await blank.close();
  fs.writeFileSync(path.join(FOLDER, `${name}.webp`), Buffer.from(webp, "base64"));
}

try {
  // The target works for a while, and then answers 503.
  target.status = 200;
  const page = await open(chromium, program, { viewport: { width: 1240, height: 860 } });
  await page.goto(program.view("component/web.parse_json"));
  await page.getByRole("button", { name: "Start" }).click();
  await page.waitForTimeout(WATCHED_MS);
  await take(page, "dashboard-component");
  await page.goto(program.view("dead-letters"));
  await page.locator(".records summary").first().click();
  await take(page, "dashboard-dead-letters");
  target.status = 503;
  await page.goto(program.view());
  await page.locator('[data-edge="alarms.encode main alarms"][data-state="held"]').waitFor();
  await take(page, "dashboard-overview");
  const phone = await open(chromium, program, { viewport: { width: 390, height: 780 }, colorScheme: "dark" });
  await phone.goto(program.view());
  await phone.locator('[data-edge][data-state="flow"]').first().waitFor();
  await take(phone, "dashboard-phone");
} finally {
  await chromium.close();
  await program.stop("SIGKILL");
  target.stop();
}
