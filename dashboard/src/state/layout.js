// The graph of a run, from left to right.

import { graphlib, layout as place } from "@dagrejs/dagre";
import { edgeKey } from "./history.js";

export const NODE = { width: 156, height: 58 };
const LABEL = { width: 60, height: 20 };
/** The node of what could not be processed. */
export const DEAD_LETTERS = "dead letters";
/** A graph with more nodes is shown as a table: its picture would take long, and show little. */
export const MOST_NODES = 250;
/** The time grows with the edges too: so many take a second. */
export const MOST_EDGES = 600;

/** The nodes of a graph with their role and kind, as `/graph` and `/stats` have them. */
export function nodes(graph, components) {
  const known = new Map(components.map(({ name, kind, role }) => [name, { name, kind, role }]));
  for (const { name } of graph.failovers) {
    known.set(name, { name, kind: "failover", role: "transform" });
  }
  return known;
}

/** Places nodes and edges. Edges with rejects are shown once something has taken them. */
export function layout(graph, stats) {
  const found = nodes(graph, stats.components);
  const shown = stats.edges.filter((edge) => edge.output !== "errors" || edge.messages > 0 || edge.to !== DEAD_LETTERS);
  for (const { from, to } of shown) {
    for (const name of [from, to]) {
      if (!found.has(name)) {
        found.set(name, { name, kind: name === DEAD_LETTERS ? "not processed" : "", role: "sink" });
      }
    }
  }
  if (found.size > MOST_NODES || shown.length > MOST_EDGES) {
    return null;
  }
  const picture = new graphlib.Graph({ multigraph: true });
  picture.setGraph({ rankdir: "LR", nodesep: 26, ranksep: 20, edgesep: 14, marginx: 8, marginy: 8 });
  // Numbers, because the library keeps names as keys of objects.
  const numbers = new Map([...found.keys()].map((name, number) => [name, `n${number}`]));
  found.forEach((node, name) => picture.setNode(numbers.get(name), { ...NODE, node }));
  shown.forEach((edge, number) => {
    picture.setEdge(numbers.get(edge.from), numbers.get(edge.to), { ...LABEL, labelpos: "c", edge }, `e${number}`);
  });
  place(picture);
  const { width, height } = picture.graph();
  return {
    width: Math.ceil(width),
    height: Math.ceil(height),
    nodes: picture.nodes().map((number) => {
      const { x, y, node } = picture.node(number);
      return { ...node, x: x - NODE.width / 2, y: y - NODE.height / 2 };
    }),
    edges: picture.edges().map((id) => {
      const { points, x, y, edge } = picture.edge(id);
      return { key: edgeKey(edge), edge, x, y, path: curve(points), tip: tip(points) };
    }),
  };
}

/** A curve through points that leaves and arrives from left to right. */
function curve(points) {
  const round = (number) => Math.round(number * 10) / 10;
  const [first, ...rest] = points;
  let path = `M${round(first.x)} ${round(first.y)}`;
  let before = first;
  for (const point of rest) {
    const middle = round((before.x + point.x) / 2);
    path += `C${middle} ${round(before.y)} ${middle} ${round(point.y)} ${round(point.x)} ${round(point.y)}`;
    before = point;
  }
  return path;
}

/** The corners of an arrow at the end. */
function tip(points) {
  const { x, y } = points.at(-1);
  return `${x},${y} ${x - 9},${y - 5} ${x - 9},${y + 5}`;
}

/** The names that decide how a graph looks: another layout is needed if they change. */
export function signature(stats) {
  return JSON.stringify([
    stats.components.map(({ name }) => name),
    stats.edges.map((edge) => [edge.from, edge.output, edge.to, edge.output !== "errors" || edge.messages > 0]),
  ]);
}
