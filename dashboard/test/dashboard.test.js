// The dashboard of a real run in a real browser.

import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { isAccessible } from "./accessible.js";
import { browser, open, PATIENCE_MS, Program, service, Target } from "./program.js";

const VIEWS = ["overview", "component/main.parse_json", "component/sensors", "component/alarms", "dead-letters", "runs", "run/1", "configuration", "process"];
let chromium, target, program;

before(async () => {
  [chromium, target] = await Promise.all([browser(), Target.start()]);
  program = await Program.start(service(target));
});

after(async () => {
  await chromium?.close();
  await program?.stop("SIGKILL");
  target?.stop();
});

/** Waits until the text of an element fits. */
async function shows(locator, pattern) {
  await locator.filter({ hasText: pattern }).first().waitFor();
}

async function hasNoMessages(page) {
  assert.deepEqual(page.messages, []);
  await page.context().close();
}

test("the server sends the page with its rules", async () => {
  const answer = await fetch(`${program.address}/dashboard`);
  const policy = answer.headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe|https?:|\*/);
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
});

test("each view is accessible in light and dark, and on a phone nothing is wider than the screen", async () => {
  for (const [colorScheme, viewport] of [["light", undefined], ["dark", undefined], ["light", { width: 360, height: 740 }]]) {
    const page = await open(chromium, program, { colorScheme, ...(viewport && { viewport }) });
    for (const view of VIEWS) {
      await page.goto(program.view(view));
      await shows(page.getByTestId("state"), /running/);
      await page.locator("h1").waitFor();
      await page.locator("main .card").first().waitFor();
      await isAccessible(page, `${view}, ${colorScheme}, ${viewport?.width ?? "wide"}`);
      const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= screen, `${view} is ${wide} wide on a screen of ${screen}`);
    }
    await hasNoMessages(page);
  }
});

test("the graph shows rates, what is rejected and what is held back", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view());
  const edge = (name) => page.locator(`[data-edge="${name}"]`);
  await page.locator('[data-edge="meters main main.parse_json"][data-state="flow"]').waitFor();
  await page.locator('[data-edge="main.parse_json errors dead letters"][data-state="errors"]').waitFor();
  await page.locator('[data-edge="probes main alarms"][data-state="held"]').waitFor();
  const width = async (name) => Number(await edge(name).locator("path").getAttribute("stroke-width"));
  const [meters, sensors] = [await width("meters main main.parse_json"), await width("sensors main main.parse_json")];
  assert.ok(meters > sensors, `${meters} ${sensors}`);
  // From left to right.
  const left = async (name) => (await page.locator(`[data-node="${name}"]`).boundingBox()).x;
  const places = await Promise.all(["sensors", "main.parse_json", "main.filter", "all.encode", "all"].map(left));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  // The numbers change by themselves.
  const read = page.locator('[data-source="meters"] td').nth(2);
  const first = await read.textContent();
  await page.waitForFunction((before) => document.querySelectorAll('[data-source="meters"] td')[2].textContent !== before, first);
  const used = await page.getByTestId("budget").getAttribute("aria-valuenow");
  assert.ok(Number(used) > 0);
  await hasNoMessages(page);
});

test("a failure is shown with its cause, and so is its end", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view("component/alarms"));
  await shows(page.getByTestId("retrying"), /503/);
  target.status = 200;
  await page.getByTestId("retrying").waitFor({ state: "detached" });
  await shows(page.locator('[data-rate="out"]'), /^[1-9][\d.]*\/s$/);
  await hasNoMessages(page);
});

test("a source is paused and resumed with the keyboard alone", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view());
  await page.getByRole("button", { name: "Pause meters" }).waitFor();
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  for (let presses = 0; (await focused()) !== "Pause meters"; presses += 1) {
    assert.ok(presses < 100, "the button cannot be reached");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await shows(page.locator('[data-source="meters"] .badge'), "paused");
  await page.locator('[data-edge="meters main main.parse_json"][data-state="idle"]').waitFor({ state: "attached" });
  await page.getByRole("button", { name: "Resume meters" }).press("Enter");
  await shows(page.locator('[data-source="meters"] .badge'), "running");
  await hasNoMessages(page);
});

test("records are shown as text as they pass, and what is rejected with its reason", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view("component/main.parse_json"));
  await page.getByRole("button", { name: "Start" }).click();
  await shows(page.locator(".records dd"), "<img src=x onerror=alert(1)>");
  await page.getByLabel("Show").selectOption("what it rejects");
  await shows(page.locator(".records .problem"), "not a JSON object");
  await shows(page.locator(".records pre"), "broken <b>line</b>");
  assert.equal(await page.locator(".records img, .records b").count(), 0);
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("button", { name: "Start" }).waitFor();
  await page.locator(".chart canvas").waitFor();
  await hasNoMessages(page);
});

test("dead letters are found by their reason and their component", async () => {
  // More than fit on a page.
  const kept = async () => (await (await fetch(`${program.address}/api/v1/stats`)).json()).dead_letters.kept;
  for (let begun = Date.now(); (await kept()) < 150; await new Promise((done) => setTimeout(done, 100))) {
    assert.ok(Date.now() - begun < PATIENCE_MS, "there are too few dead letters");
  }
  const page = await open(chromium, program);
  await page.goto(program.view("component/main.parse_json"));
  await page.getByRole("link", { name: "Its dead letters" }).click();
  await shows(page.locator(".records .problem"), "not a JSON object");
  assert.equal(await page.getByLabel("Component").inputValue(), "main.parse_json");
  await page.getByLabel("Search").fill("sensors JSON");
  await shows(page.getByTestId("found"), /^\s*[1-9]/);
  await page.locator(".records summary").first().click();
  await shows(page.locator(".records pre"), "broken <b>line</b>");
  await page.getByLabel("Search").fill("nothing like it");
  await shows(page.getByTestId("found"), /^\s*0 of/);
  await page.getByLabel("Search").fill("");
  await page.getByRole("button", { name: "Next 100" }).click();
  await page.locator(".records li").filter({ hasText: /^\S+ 101,/ }).waitFor();
  await hasNoMessages(page);
});

test("a dead letter is discarded after a question", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view("dead-letters"));
  await page.getByRole("button", { name: "Discard 1", exact: true }).click();
  await isAccessible(page, "the question");
  await page.getByRole("dialog").getByRole("button", { name: "Discard" }).click();
  await shows(page.getByTestId("found"), "1 discarded.");
  assert.equal(await page.getByRole("button", { name: "Discard 1", exact: true }).count(), 0);
  await page.getByRole("button", { name: "Discard 2", exact: true }).waitFor();
  await hasNoMessages(page);
});

test("runs are listed, and the log level is changed", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view("runs"));
  await page.getByRole("link", { name: "1", exact: true }).click();
  await shows(page.locator(".badge"), "running");
  await page.goto(program.view("process"));
  await page.getByLabel("Level").fill("warn,thalweg_engine=info");
  await page.getByRole("button", { name: "Set" }).click();
  await shows(page.getByTestId("level"), "warn,thalweg_engine=info");
  await page.getByLabel("Colours").selectOption("dark");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await page.reload();
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await hasNoMessages(page);
});

test("a source is drained after a question", async () => {
  const page = await open(chromium, program);
  await page.goto(program.view("component/sensors"));
  await page.getByRole("button", { name: "Drain sensors" }).click();
  await isAccessible(page, "the question");
  await page.getByRole("button", { name: "Cancel" }).click();
  await shows(page.locator("main"), /source generate/);
  await page.getByRole("button", { name: "Drain sensors" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await shows(page.locator("main p .badge"), /draining|ended/);
  await hasNoMessages(page);
});

test("a token is asked for, kept in the tab, and forgotten", async (t) => {
  const folder = fs.mkdtempSync(path.join(program.folder, "token-"));
  fs.writeFileSync(path.join(folder, "token"), "a-token-of-this-test-alone\n", { mode: 0o600 });
  const guarded = await Program.start(service(target), ["--api-token-file", path.join(folder, "token")]);
  t.after(() => guarded.stop("SIGKILL"));
  const page = await open(chromium, guarded);
  await page.goto(guarded.view());
  await isAccessible(page, "token");
  await page.getByLabel("Token").fill("a-wrong-token-of-this-test");
  await page.getByRole("button", { name: "Continue" }).click();
  await shows(page.getByRole("alert"), "not the token");
  await page.getByLabel("Token").fill("a-token-of-this-test-alone");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.locator('[data-node="sensors"]').waitFor();
  await page.reload();
  await page.locator('[data-node="sensors"]').waitFor();
  await page.goto(guarded.view("component/meters"));
  await page.getByRole("button", { name: "Start" }).click();
  await shows(page.locator(".records pre"), "roof");
  await page.goto(guarded.view("process"));
  await page.getByRole("button", { name: "Forget the token" }).click();
  await page.getByLabel("Token").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  // The browser itself reports refused requests.
  assert.deepEqual(page.messages.filter((text) => !text.includes("401")), []);
  await page.context().close();
});

test("the end of the process is noticed", async (t) => {
  const short = await Program.start(service(target));
  t.after(() => short.stop("SIGKILL"));
  const page = await open(chromium, short);
  await page.goto(short.view());
  await shows(page.getByTestId("state"), "running");
  await short.stop();
  await shows(page.getByTestId("state"), "no answer");
  await shows(page.getByRole("alert"), "the process does not answer");
  await page.context().close();
});

test("between two runs the time of the next one is shown", async (t) => {
  const scheduled = await Program.start(service(target), ["--schedule", "0 0 1 1 *"]);
  t.after(() => scheduled.stop("SIGKILL"));
  const page = await open(chromium, scheduled);
  await page.goto(scheduled.view());
  await shows(page.getByTestId("state"), "waiting for the next run");
  await shows(page.getByTestId("waiting"), /-01-01/);
  await isAccessible(page, "waiting");
  await hasNoMessages(page);
});
