import assert from "node:assert/strict";
import { test } from "node:test";
import { DEAD_LETTERS, layout, MOST_EDGES, MOST_NODES, signature } from "../src/state/layout.js";

const component = (name) => ({ name, kind: "any", role: "transform" });
const edge = (from, output, to, messages = 0) => ({ from, output, to, messages, bytes: 0, batches: 0 });
const GRAPH = { failovers: [] };

function chain(names) {
  return { components: names.map(component), edges: names.slice(1).map((name, at) => edge(names[at], "main", name)) };
}

test("a graph goes from left to right, whatever its names are", () => {
  const names = ["__proto__", "constructor", "a b\u0000c", "<script>", "ü"];
  const placed = layout(GRAPH, chain(names));
  assert.deepEqual(placed.nodes.map(({ name }) => name), names);
  const places = placed.nodes.map(({ x }) => x);
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  assert.equal(new Set(places).size, names.length);
  assert.ok(placed.edges.every(({ path, tip }) => !`${path}${tip}`.includes("NaN")));
});

test("an edge to the dead letters appears with its first message", () => {
  const stats = chain(["a", "b"]);
  stats.edges.push(edge("b", "errors", DEAD_LETTERS));
  const before = signature(stats);
  assert.equal(layout(GRAPH, stats).nodes.length, 2);
  stats.edges.at(-1).messages = 1;
  assert.notEqual(signature(stats), before);
  assert.deepEqual(layout(GRAPH, stats).nodes.map(({ name }) => name), ["a", "b", DEAD_LETTERS]);
});

test("parallel edges are apart, and a large graph has no picture", () => {
  const stats = chain(["a", "b"]);
  stats.edges.push(edge("a", "other", "b"));
  assert.equal(new Set(layout(GRAPH, stats).edges.map(({ path }) => path)).size, 2);
  const many = Array.from({ length: MOST_NODES + 1 }, (_, number) => `sink-${number}`);
  assert.equal(layout(GRAPH, { components: many.map(component), edges: [] }), null);
  const between = Array.from({ length: MOST_EDGES + 1 }, (_, number) => edge("a", `output-${number}`, "b"));
  assert.equal(layout(GRAPH, { components: ["a", "b"].map(component), edges: between }), null);
});
