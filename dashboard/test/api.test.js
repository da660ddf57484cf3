import assert from "node:assert/strict";
import { afterEach, mock, test } from "node:test";
import { get, isToken, Refused, tap } from "../src/state/api.js";

afterEach(() => mock.reset());

/** Lets all requests be answered by this function. */
function answered(answer) {
  mock.method(globalThis, "fetch", async (_, { signal }) => answer(signal));
}

/** A stream that ends with its request. */
function stream(signal, begin) {
  const body = new ReadableStream({
    start(controller) {
      begin(controller);
      signal.addEventListener("abort", () => controller.error(signal.reason));
    },
  });
  return new Response(body);
}

test("a tap that is silent for long is lost, and one that says that it is there is not", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const line = new TextEncoder().encode('{"left_out":0}\n');
  let tapped;
  answered((signal) => stream(signal, (controller) => (tapped = controller)));
  const taken = [];
  let arrived;
  const ended = tap("a", new AbortController().signal, (value) => {
    taken.push(value);
    arrived();
  });
  for (let signs = 0; signs < 6; signs += 1) {
    const next = new Promise((done) => (arrived = done));
    while (!tapped) await new Promise(setImmediate);
    tapped.enqueue(line);
    await next;
    mock.timers.tick(15_000);
  }
  assert.equal(taken.length, 6);
  mock.timers.tick(60_000);
  await assert.rejects(ended, new Refused(0, "the tap broke off"));
});

test("a refusal without an object has its status", async () => {
  answered(() => new Response("null", { status: 502 }));
  await assert.rejects(get("/stats"), { status: 502, message: "the answer has the status 502" });
});

test("a token is what a header can have", () => {
  assert.deepEqual(["0123456789abcdef", "a b", "€", "", "a\nb"].map(isToken), [true, false, false, false, false]);
});
