// Requests to the API of the run that served this page.
//
// The token is in the memory of this tab alone (sessionStorage), and goes with each request as a header: a cookie would be sent
// by pages of other sites too. A header also rules out `EventSource` for taps, so their lines are read from a stream.

import { keep, read } from "./storage.js";

const TOKEN = "thalweg-token";
/** The longest line of a tap, in characters. The API sends at most 32 KiB of a text. */
const LONGEST_LINE = 1 << 20;
/** How long an answer is waited for. The API gives up after as much. */
const TIMEOUT_MS = 12_000;

/** A tap says every 15 seconds that it is there. One that is silent for longer is lost: the computer slept, or a tunnel broke. */
const SILENT_MS = 60_000;
/** What a header can have. */
const PRINTABLE = /^[\x21-\x7e]+$/;

/** An answer that is none. `status` is 0 if nothing answered. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

export function token() {
  return read(() => sessionStorage, TOKEN) ?? "";
}

/** True if a text can be a token at all. */
export function isToken(text) {
  return PRINTABLE.test(text);
}

export function setToken(text) {
  keep(() => sessionStorage, TOKEN, text);
}

/** Asks for a value. */
export function get(path) {
  return ask(path, {});
}

/** Asks for a change. */
export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}) });
}

async function ask(path, options) {
  const answer = await send(path, { ...options, signal: AbortSignal.timeout(TIMEOUT_MS) });
  try {
    return await answer.json();
  } catch {
    throw new Refused(0, "the answer ended too early");
  }
}

async function send(path, options) {
  const headers = { ...options.headers };
  if (token()) {
    headers.Authorization = `Bearer ${token()}`;
  }
  let answer;
  try {
    answer = await fetch(`api/v1${path}`, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    throw new Refused(0, error.name === "AbortError" ? "ended" : "the process does not answer");
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, typeof body?.error === "string" ? body.error : `the answer has the status ${answer.status}`);
  }
  return answer;
}

/** The path of a request to a source. */
export function ofSource(name, action) {
  return `/sources/${encodeURIComponent(name)}/${action}`;
}

/** Calls `take` with each line of a tap until the run ends or `signal` is aborted. */
export async function tap(edge, signal, take) {
  const query = new URLSearchParams({ edge, rate: "5", max_bytes: "4096" });
  const lost = new AbortController();
  let silence;
  const wait = () => {
    clearTimeout(silence);
    silence = setTimeout(() => lost.abort(), SILENT_MS);
  };
  let reader;
  let rest = "";
  try {
    wait();
    const answer = await send(`/tap?${query}`, { signal: AbortSignal.any([signal, lost.signal]) });
    reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      wait();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (rest.length > LONGEST_LINE) {
        throw new Refused(0, "a line of the tap is too long");
      }
      lines.filter(Boolean).forEach((line) => take(JSON.parse(line)));
    }
  } catch (error) {
    if (!signal.aborted) {
      throw error instanceof Refused && !lost.signal.aborted ? error : new Refused(0, "the tap broke off");
    }
  } finally {
    clearTimeout(silence);
    reader?.cancel().catch(() => {});
  }
}
