// A run of the program with the dashboard, and a browser. `THALWEG` is the program, `CHROMIUM` the browser.

import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";

/** How long a test waits for what must come. It is no measurement: on a busy machine it takes as long as it takes. */
export const PATIENCE_MS = 120_000;

/** A run of a configuration in a folder of its own. */
export class Program {
  static async start(configuration, options = []) {
    const program = new Program();
    program.folder = fs.mkdtempSync(path.join(os.tmpdir(), "thalweg-dashboard-"));
    fs.writeFileSync(path.join(program.folder, "service.yaml"), configuration);
    const line = ["run", "service.yaml", "--json", "--state", "state", "--listen", "127.0.0.1:0", ...options];
    program.child = spawn(process.env.THALWEG ?? "thalweg", line, { cwd: program.folder, stdio: ["ignore", "ignore", "pipe"] });
    program.ended = new Promise((done) => program.child.on("exit", done));
    const lines = readline.createInterface({ input: program.child.stderr });
    program.log = [];
    program.address = await new Promise((done, failed) => {
      lines.on("line", (text) => {
        program.log.push(text);
        const address = /"event":"listening".*?(http:\/\/127\.0\.0\.1:\d+)/.exec(text)?.[1];
        if (address) done(address);
      });
      lines.on("close", () => failed(new Error(`the program ended:\n${program.log.join("\n")}`)));
    });
    return program;
  }

  /** The address of a view. */
  view(view = "") {
    return `${this.address}/dashboard#/${view}`;
  }

  async stop(signal = "SIGTERM") {
    // A process that has ended is left alone.
    this.child.kill(signal);
    await this.ended;
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A server that answers each request with a status, which may change. */
export class Target {
  status = 503;

  static async start() {
    const target = new Target();
    target.server = http.createServer((request, answer) => {
      request.resume();
      request.on("end", () => answer.writeHead(target.status).end());
    });
    await new Promise((done) => target.server.listen(0, "127.0.0.1", done));
    target.url = `http://127.0.0.1:${target.server.address().port}/`;
    return target;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

export function browser() {
  // Chromium has no sandbox for root.
  const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
}

/** A page whose messages are kept, and which may ask only this address. */
export async function open(inBrowser, program, options = {}) {
  const context = await inBrowser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  page.messages = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.messages.push(message.text()));
  page.on("pageerror", (error) => page.messages.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(`${program.address}/`)) page.messages.push(`a request to ${request.url()}`);
  });
  return page;
}

/** A transform that rejects, and a sink whose target fails at first. It holds its source back, so it has one of its own. */
export function service(target) {
  return `
sources:
  sensors: { generate: { lines: ['{"celsius": 21, "place": "<img src=x onerror=alert(1)>"}', 'broken <b>line</b>'], count: 100000000, rate: 200 } }
  meters: { generate: { lines: ['{"celsius": 35, "place": "roof"}'], count: 100000000, rate: 300 } }
  probes: { generate: { lines: [smoke], count: 100000000, rate: 20 } }
pipelines:
  main: { from: [sensors, meters], transforms: [parse_json, { filter: "celsius > 3" }], to: all }
  fire: { from: probes, to: alarms }
sinks:
  all: { file: { path: all.jsonl, encode: json, atomic: false } }
  alarms: { http: { url: "${target.url}" } }
`;
}
