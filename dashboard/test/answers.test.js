// The built page with answers that a real run gives seldom: thousands of components, other versions, requests that overtake.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isAccessible } from "./accessible.js";
import { browser, open } from "./program.js";
import { about, stats, StandIn } from "./standin.js";

const FILE = { changed: ["main"], restarted: ["in", "out"], added: ["<b>new</b>"], removed: [], kept: ["other"] };
const NOTHING = { changed: [], restarted: [], added: [], removed: [], kept: ["main", "in", "out", "other"] };
const followed = (more) => about({ reload: { begun: 0, ended: 0, failure: null, difference: null, ...more } });
let chromium;

before(async () => (chromium = await browser()));
after(() => chromium?.close());

/** A page of a server that has these answers. */
async function shown(t, view, answers, options) {
  const standIn = await StandIn.start(answers);
  t.after(() => standIn.stop());
  const page = await open(chromium, standIn, options);
  t.after(() => page.context().close());
  await page.goto(standIn.view(view));
  return { page, standIn };
}

/** Waits until the text of an element fits. */
async function shows(locator, pattern) {
  await locator.filter({ hasText: pattern }).first().waitFor();
}

const focused = (page) => page.evaluate(() => document.activeElement.textContent);

test("ten thousand components are a table of some, and each is found", async (t) => {
  const names = Array.from({ length: 10_000 }, (_, number) => `main.step-${number}`);
  const many = () => {
    const given = stats(names);
    given.components[8_765].retrying = "the disk is full";
    given.sources = names.map((name) => ({ name, kind: "any", state: "running" }));
    return given;
  };
  const { page } = await shown(t, "", { "GET /api/v1/stats": many });
  await shows(page.getByTestId("rows").first(), "200 of 10000 shown");
  assert.equal(await page.locator('section[aria-labelledby="components"] tbody tr').count(), 200);
  await page.getByRole("search", { name: "components" }).getByLabel("Search").fill("retrying");
  await page.getByRole("link", { name: "main.step-8765", exact: true }).last().waitFor();
  await shows(page.getByTestId("rows").last(), "1 of 1 found shown");
  await isAccessible(page, "many components");
  assert.deepEqual(page.messages, []);
});

test("answers that the page does not know are said to be so, and the next ones are shown", async (t) => {
  const { page, standIn } = await shown(t, "", { "GET /api/v1/stats": { time: "now" } });
  await shows(page.getByRole("alert"), "load the page again");
  standIn.answers["GET /api/v1/stats"] = () => stats(["a", "b"], { budget: { holders: [] } });
  await page.locator('[data-node="a"]').waitFor();
  await page.getByRole("alert").waitFor({ state: "detached" });
  standIn.answers["GET /api/v1"] = about({ version: "2.0.0" });
  await shows(page.getByTestId("other-version"), "load the page again");
  standIn.answers["GET /api/v1/stats"] = null;
  await shows(page.getByRole("alert"), "load the page again");
});

test("a view that cannot be shown leaves the others as they are", async (t) => {
  const { page } = await shown(t, "run/1", { "GET /api/v1/runs/1": { outcome: "done" } });
  await shows(page.getByRole("alert"), "This view cannot be shown");
  await page.getByRole("link", { name: "Overview" }).click();
  await page.locator('[data-node="a"]').waitFor();
});

test("numbers of a run that has ended are not shown as present ones", async (t) => {
  const { page, standIn } = await shown(t, "", {});
  await page.locator('[data-node="a"]').waitFor();
  standIn.answers["GET /api/v1"] = about({ next_run: "2030-01-01T00:00:00Z", started: false });
  await page.locator('[data-node="a"]').waitFor({ state: "detached" });
  await shows(page.getByTestId("waiting"), "2030");
});

test("a page that may keep nothing works", async (t) => {
  const standIn = await StandIn.start({});
  t.after(() => standIn.stop());
  const page = await open(chromium, standIn);
  t.after(() => page.context().close());
  await page.addInitScript(() => {
    for (const name of ["localStorage", "sessionStorage"]) {
      Object.defineProperty(window, name, { get: () => { throw new DOMException("denied", "SecurityError"); } });
    }
  });
  await page.goto(standIn.view("process"));
  await page.getByLabel("Colours").selectOption("dark");
  await page.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  await shows(page.getByTestId("state"), "running");
  assert.deepEqual(page.messages, []);
});

test("a token that no header can have is a wrong one", async (t) => {
  const { page } = await shown(t, "", { "GET /api/v1": { status: 401, body: { error: "token" } } });
  assert.equal(await page.getByTestId("insecure").count(), 0);
  await page.getByLabel("Token").fill("a-token-with-ü-and-€");
  await page.getByRole("button", { name: "Continue" }).click();
  await shows(page.getByRole("alert"), "not the token");
});

test("a token is not asked for without a warning where the network can read it", async (t) => {
  const standIn = await StandIn.start({ "GET /api/v1": { status: 401, body: { error: "token" } } });
  t.after(() => standIn.stop());
  const page = await open(chromium, standIn);
  t.after(() => page.context().close());
  // As at an address that is not of this machine.
  await page.addInitScript(() => Object.defineProperty(window, "isSecureContext", { value: false }));
  await page.goto(standIn.view());
  await shows(page.getByTestId("insecure"), "not encrypted");
  await isAccessible(page, "a token without encryption");
});

test("dead letters of another component that come late are not shown, nor discarded", async (t) => {
  const letter = (id, component) => ({ id, time: null, component, source: "in", path: null, position: null, reason: "is no JSON", file: null, payload: "x", payload_is_cut: false });
  let release;
  const late = new Promise((done) => (release = done));
  const discarded = [];
  const { page } = await shown(t, "dead-letters?component=b", {
    "GET /api/v1/dead_letters": async (url) => {
      const component = url.searchParams.get("component");
      if (component) return { dead_letters: [letter(2, component)], dropped: 0 };
      await late;
      return { dead_letters: [letter(1, "a")], dropped: 0 };
    },
    "POST /api/v1/dead_letters/discard": () => {
      discarded.push(1);
      return { discarded: 1 };
    },
  });
  await page.getByRole("button", { name: "Discard 2", exact: true }).waitFor();
  await page.getByLabel("Component").selectOption("");
  await page.getByLabel("Component").selectOption("b");
  const answered = page.waitForResponse((answer) => answer.url().endsWith("after=0"));
  release();
  await (await answered).finished();
  // The page has read the answer and has drawn.
  await page.evaluate(() => new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)))));
  await page.getByRole("button", { name: "Discard 2", exact: true }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Discard 1", exact: true }).count(), 0);
  // A key that is held down does not answer the question.
  await page.getByRole("button", { name: "Discard 2", exact: true }).press("Enter");
  await page.getByRole("dialog").waitFor();
  assert.equal(await focused(page), "Cancel");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
  assert.deepEqual(discarded, []);
  assert.deepEqual(page.messages, []);
});

test("a button that says something else after a click keeps the focus", async (t) => {
  let state = "running";
  const set = (next) => () => {
    state = next;
    return { source: "a", state };
  };
  const { page } = await shown(t, "component/a", {
    "GET /api/v1/stats": () => stats(["a", "b"], { sources: [{ name: "a", kind: "any", state }] }),
    "POST /api/v1/sources/a/pause": set("paused"),
    "POST /api/v1/sources/a/resume": set("running"),
  });
  await page.getByRole("button", { name: "Pause a" }).press("Enter");
  await page.getByRole("button", { name: "Resume a" }).waitFor();
  assert.equal(await focused(page), "Resume");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Pause a" }).waitFor();
});

test("without --watch, the page says how a run follows its configuration", async (t) => {
  const { page, standIn } = await shown(t, "configuration", {});
  await shows(page.locator("main pre"), "--watch");
  await isAccessible(page, "without --watch");
  assert.ok(!standIn.asked.some((path) => path.includes("difference")));
});

test("a difference is shown, applied, and then nothing differs", async (t) => {
  let next = FILE;
  const { page, standIn } = await shown(t, "configuration", {
    "GET /api/v1": followed(),
    "GET /api/v1/difference": () => ({ difference: next }),
    "POST /api/v1/reload": () => {
      next = NOTHING;
      standIn.answers["GET /api/v1"] = followed({ begun: 1, ended: 1, difference: FILE });
      return { state: "reloaded", difference: FILE };
    },
  });
  const difference = page.getByTestId("difference").first();
  await shows(difference.locator('[data-kind="added"] dd'), "<b>new</b>");
  assert.deepEqual(await difference.locator("[data-kind]").evaluateAll((all) => all.map((one) => one.dataset.kind)), ["changed", "restarted", "added", "kept"]);
  assert.ok(!standIn.asked.includes("POST /api/v1/reload"));
  await isAccessible(page, "a difference");
  await page.getByRole("button", { name: "Apply" }).press("Enter");
  await shows(page.getByTestId("done"), "Reloaded: 1 changed, 2 restarted, 1 added, 1 kept.");
  await page.getByTestId("same").waitFor();
  assert.equal(await page.getByRole("button", { name: "Apply" }).count(), 0);
  await shows(page.getByTestId("reloads"), "1 so far");
  await isAccessible(page, "after a reload");
  assert.deepEqual(page.messages, []);
});

test("mistakes are shown with their places, and a refusal with its reason", async (t) => {
  const mistakes = "the configuration cannot be used: service.yaml:2:14: Unknown option `pth`. (Did you mean `path`?)\nservice.yaml:3:1: There are no `pipelines`.";
  const refused = "the configuration cannot be followed: `memory` changed: restart thalweg for this setting";
  let reloaded = { status: 409, body: { error: refused } };
  let file = { status: 422, body: { error: mistakes } };
  const { page, standIn } = await shown(t, "configuration", {
    "GET /api/v1": followed({ begun: 1, ended: 1, failure: mistakes }),
    "GET /api/v1/difference": () => file,
    "POST /api/v1/reload": () => reloaded,
  }, { viewport: { width: 360, height: 740 } });
  await shows(page.getByTestId("problem"), "service.yaml:3:1: There are no");
  assert.equal(await page.getByRole("button", { name: "Apply" }).count(), 0);
  await isAccessible(page, "mistakes");
  file = { difference: FILE };
  // The end of another reload is a reason to compare again.
  standIn.answers["GET /api/v1"] = followed({ begun: 2, ended: 2, failure: mistakes });
  await page.getByRole("button", { name: "Apply" }).click();
  await shows(page.getByTestId("refusal"), "restart thalweg for this setting");
  await shows(page.getByTestId("done"), "Not reloaded");
  await page.getByRole("button", { name: "Apply" }).waitFor();
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than a phone");
  // A reload that nobody confirms may have taken place.
  reloaded = Promise.reject(new Error("the connection breaks"));
  reloaded.catch(() => {});
  await page.getByRole("button", { name: "Apply" }).click();
  await shows(page.getByTestId("done"), "not known");
});

test("the end of a long reload is waited for, and so is that of its process", async (t) => {
  let number = 3;
  const { page, standIn } = await shown(t, "configuration", {
    "GET /api/v1": followed({ begun: 3, ended: 2 }),
    "GET /api/v1/difference": { difference: FILE },
    "POST /api/v1/reload": () => ({ state: "reloading", number: (number += 1) }),
  });
  const apply = page.getByRole("button", { name: "Apply" });
  await apply.click();
  await shows(page.getByTestId("done"), "The reload goes on.");
  standIn.answers["GET /api/v1"] = followed({ begun: 4, ended: 3 });
  await shows(page.getByTestId("reloads"), "The 4. reload goes on.");
  standIn.answers["GET /api/v1"] = followed({ begun: 4, ended: 4, difference: FILE });
  await shows(page.getByTestId("done"), "Reloaded: 1 changed");
  await apply.click();
  await shows(page.getByTestId("done"), "The reload goes on.");
  standIn.answers["GET /api/v1"] = { ...followed(), pid: 8 };
  await shows(page.getByTestId("refusal"), "the process has begun again");
  await shows(page.getByTestId("done"), "not known");
});
