import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, count, span } from "../src/state/format.js";
import { History } from "../src/state/history.js";

const counts = (name, rows) => ({ name, rows_in: rows, rows_out: rows, errors: 0, bytes_in: 0, bytes_out: 0, busy_ns: 0 });
const EDGE = { from: "a", output: "main", to: "b" };

function answer(age, rows, names = ["a"]) {
  return {
    uptime_s: age,
    time: new Date(age * 1000).toISOString(),
    components: names.map((name) => counts(name, rows)),
    edges: [{ ...EDGE, messages: rows, bytes: 2 * rows }],
  };
}

test("a rate is that of the last seconds", () => {
  const history = new History();
  history.push(answer(1, 10));
  assert.ok(Number.isNaN(history.ofComponent("a", "rows_in")));
  for (let age = 2; age <= 20; age += 1) {
    history.push(answer(age, age < 10 ? 10 : 10 + 100 * (age - 9)));
  }
  assert.equal(history.ofComponent("a", "rows_in"), 100);
  assert.equal(history.ofEdge(EDGE, "bytes"), 200);
  assert.ok(Number.isNaN(history.ofComponent("unknown", "rows_in")));
  const [times, rates] = history.series("a", ["rows_out"]);
  assert.deepEqual([times.length, times[0], rates.length, rates.at(-1)], [20, 1, 20, 100]);
});

test("another run begins a history, and what a reload keeps has its own still", () => {
  const history = new History();
  history.push(answer(10, 1000));
  history.push(answer(11, 2000));
  history.push(answer(1, 5));
  assert.equal(history.series("a", ["rows_in"])[0].length, 1);
  history.push(answer(2, 10));
  assert.equal(history.ofComponent("a", "rows_in"), 5);
  history.push(answer(3, 20, ["b", "a"]));
  assert.equal(history.ofComponent("a", "rows_in"), 7.5);
  assert.ok(Number.isNaN(history.ofComponent("b", "rows_in")));
  history.push(answer(4, 26, ["b", "a"]));
  const [times, ofA] = history.series("a", ["rows_in"]);
  assert.deepEqual([times.length, ofA.at(-1)], [4, 7]);
  assert.equal(history.ofComponent("b", "rows_in"), 6);
  history.push(answer(5, 26, ["b"]));
  assert.ok(Number.isNaN(history.ofComponent("a", "rows_in")));
});

test("a counter that begins again and a pause of the page give no wrong rate", () => {
  const history = new History();
  for (let age = 1; age <= 10; age += 1) {
    history.push(answer(age, 1000 * age));
  }
  // A reload has replaced the component.
  history.push(answer(11, 10));
  assert.ok(Number.isNaN(history.ofComponent("a", "rows_in")));
  history.push(answer(12, 30));
  assert.equal(history.ofComponent("a", "rows_in"), 20);
  // The computer slept for an hour.
  history.push(answer(3612, 72_030));
  assert.ok(Number.isNaN(history.ofComponent("a", "rows_in")));
  assert.equal(history.series("a", ["rows_in"])[1].at(-1), 20);
  history.push(answer(3613, 72_037));
  assert.equal(history.ofComponent("a", "rows_in"), 7);
});

test("missing numbers are unknown, and times rise although the clock is set back", () => {
  const history = new History();
  for (let age = 1; age <= 3; age += 1) {
    const given = answer(age, age);
    given.time = new Date((100 - age) * 1000).toISOString();
    delete given.components[0].rows_in;
    history.push(given);
  }
  assert.ok(Number.isNaN(history.ofComponent("a", "rows_in")));
  assert.equal(history.ofComponent("a", "rows_out"), 1);
  assert.deepEqual(history.series("a", [])[0], [95, 96, 97]);
});

test("a large graph has a shorter history", () => {
  const [small, large] = [new History(), new History()];
  const names = Array.from({ length: 20_000 }, (_, number) => `sink-${number}`);
  for (let age = 1; age <= 700; age += 1) {
    small.push(answer(age, age));
  }
  for (let age = 1; age <= 30; age += 1) {
    large.push(answer(age, age, names));
  }
  assert.equal(small.series("a", [])[0].length, 600);
  assert.equal(large.series("a", [])[0].length, 17);
});

test("numbers are short", () => {
  assert.deepEqual([0, 3, 0.1234, 9999, 12_345, 1_250_000, 2e12, NaN].map(count), ["0", "3", "0.12", "9999", "12.3 k", "1.25 M", "2 T", "–"]);
  assert.deepEqual([0, 1023, 1536, 5 << 20, NaN].map(bytes), ["0 B", "1023 B", "1.50 KiB", "5 MiB", "–"]);
  assert.deepEqual([0.0042, 5, 61, 3600, 7500, 90_000].map(span), ["4.20 ms", "5 s", "1 min 1 s", "1 h", "2 h 5 min", "1 d 1 h"]);
});
