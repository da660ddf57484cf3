// A server with the built page and answers that a test gives: what a real run says seldom, late or never.

import fs from "node:fs";
import http from "node:http";
import path from "node:path";

const MODULE = path.join(import.meta.dirname, "../../crates/frontend/src/api/dashboard");
const FILES = {
  "/dashboard": ["index.html", "text/html; charset=utf-8"],
  "/dashboard/app.js": ["app.js", "text/javascript; charset=utf-8"],
  "/dashboard/app.css": ["app.css", "text/css; charset=utf-8"],
  "/dashboard/icon.svg": ["icon.svg", "image/svg+xml"],
};
/** The policy that the program sends. */
const POLICY = /POLICY: &str = "([^;]*;.*?)";\n/s.exec(fs.readFileSync(path.join(MODULE, "mod.rs"), "utf8"))[1].replace(/\\\n\s*/g, "");

export function about(more) {
  return { name: "thalweg", version: "1.0.0", pid: 7, uptime_s: 60, configurations: ["service.yaml"], state: "state", started: true, stopping: false, ...more };
}

export const GRAPH = { failovers: [], segments: [], sources: [], memory: 1 << 20, cores: 2 };

const counts = (name) => ({ name, kind: "any", role: "transform", rows_in: 0, rows_out: 0, errors: 0, bytes_in: 0, bytes_out: 0, busy_ns: 0, gauges: {} });

export function stats(names, more) {
  return {
    time: new Date().toISOString(),
    uptime_s: process.uptime(),
    item: "message",
    started: true,
    stopping: false,
    budget: { limit: 100, used: 1, peak: 2, holders: [] },
    components: names.map(counts),
    edges: names.slice(1).map((name, at) => ({ from: names[at], output: "main", to: name, messages: 0, bytes: 0, batches: 0 })),
    queues: [],
    latencies: [],
    sources: [],
    dead_letters: { kept: 0, dropped: 0, full: null },
    ...more,
  };
}

/** Answers are by method and path: a value, or a function of the URL that gives a value or `{ status, body }` as a promise. A promise that fails breaks the connection. */
export class StandIn {
  static async start(answers) {
    const standIn = new StandIn();
    standIn.answers = { "GET /api/v1": about(), "GET /api/v1/graph": GRAPH, "GET /api/v1/stats": () => stats(["a", "b"]), ...answers };
    standIn.asked = [];
    standIn.server = http.createServer((request, answer) => standIn.answer(request, answer).catch(() => answer.destroy()));
    await new Promise((done) => standIn.server.listen(0, "127.0.0.1", done));
    standIn.address = `http://127.0.0.1:${standIn.server.address().port}`;
    return standIn;
  }

  async answer(request, answer) {
    const url = new URL(request.url, this.address);
    if (FILES[url.pathname]) {
      const [name, type] = FILES[url.pathname];
      answer.writeHead(200, { "Content-Type": type, "Content-Encoding": "gzip", "Content-Security-Policy": POLICY });
      answer.end(fs.readFileSync(path.join(MODULE, "built", `${name}.gz`)));
      return;
    }
    const what = `${request.method} ${url.pathname.replace(/\/$/, "")}`;
    this.asked.push(`${what}${url.search}`);
    const found = this.answers[what];
    const given = await (typeof found === "function" ? found(url) : found);
    const isWhole = given?.status !== undefined;
    answer.writeHead(given === undefined ? 404 : isWhole ? given.status : 200, { "Content-Type": "application/json" });
    answer.end(JSON.stringify(given === undefined ? { error: "no such path" } : isWhole ? given.body : given));
  }

  view(view = "") {
    return `${this.address}/dashboard#/${view}`;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
