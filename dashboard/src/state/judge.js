// The states of components and edges, each with a word and a class: a colour alone would say nothing to some.

/** A channel is full from this part of its limit on. */
const FULL = 0.8;

/** The state of a component. */
export function ofComponent(component, source, errorRate) {
  if (component.retrying) {
    return { state: "held", word: "retrying" };
  }
  if (errorRate > 0) {
    return { state: "errors", word: "rejecting" };
  }
  if (source && source.state !== "running") {
    return { state: source.state === "paused" ? "held" : "idle", word: source.state };
  }
  return null;
}

/** The state of an edge with this rate. */
export function ofEdge(edge, rate, target, queue) {
  if (edge.output === "errors") {
    return rate > 0 ? { state: "errors", word: "rejects" } : { state: "idle", word: "idle" };
  }
  if (target?.retrying) {
    return { state: "held", word: "its target retries" };
  }
  if (queue && queue.limit_bytes > 0 && queue.bytes >= FULL * queue.limit_bytes) {
    return { state: "held", word: "the channel is full" };
  }
  return rate > 0 ? { state: "flow", word: "flows" } : { state: "idle", word: "idle" };
}

/** The width of an edge: a step for each tenfold. */
export function width(rate) {
  return rate > 0 ? Math.min(14, 2 + 2 * Math.log10(1 + rate)) : 1.5;
}
