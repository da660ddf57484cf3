// The outcomes of runs, as the classes that colour them.

const STATES = { running: "flow", done: "flow", stopped: "idle", interrupted: "held", failed: "errors" };

export function stateOf(outcome) {
  return STATES[outcome] ?? "idle";
}
