// What is known of the process: its latest answers, and the history of this tab.

import { get, isToken, Refused, setToken, token } from "./api.js";
import { edgeKey, History } from "./history.js";

const EVERY_MS = 1000;
const UNREADABLE = "the page cannot read the answer: load the page again, because the process may be of another version";

class Run {
  about = $state.raw(null);
  graph = $state.raw(null);
  stats = $state.raw(null);
  /** Counts the answers, so that what follows from the history is computed again. */
  answers = $state(0);
  /** Why there is no answer, or an empty text. */
  problem = $state("");
  needsToken = $state(false);
  /** True once a token was sent and is wrong. */
  isTokenWrong = $state(false);
  /** The version of the process that was seen first, which the page is of. */
  version = "";
  history = new History();
  #components = $derived(byName(this.stats?.components, "name"));
  #sources = $derived(byName(this.stats?.sources, "name"));
  #queues = $derived(byName(this.stats?.queues, "to"));
  #names = "";
  /** Another number after the token was forgotten. */
  #visit = 0;

  /** Asks once a second until it is stopped. Returns what stops it. */
  follow() {
    let timer;
    let isOver = false;
    const step = async () => {
      try {
        if (!this.needsToken) {
          await this.#look();
        }
      } finally {
        if (!isOver) {
          timer = setTimeout(step, EVERY_MS);
        }
      }
    };
    step();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }

  async #look() {
    const visit = this.#visit;
    try {
      const about = await get("");
      const stats = about?.next_run === undefined ? await get("/stats") : null;
      if (!isKnown(about, stats)) {
        throw new Refused(0, UNREADABLE);
      }
      // The graph may be another one in the same run.
      const names = JSON.stringify([stats?.components.map(({ name, kind }) => [name, kind]), stats?.edges.map(edgeKey)]);
      const isOther = stats && (!this.graph || names !== this.#names || stats.uptime_s < (this.stats?.uptime_s ?? 0));
      const graph = isOther ? await get("/graph") : this.graph;
      // The token may have been forgotten meanwhile.
      if (visit !== this.#visit) {
        return;
      }
      this.version ||= about.version;
      this.about = about;
      if (!stats) {
        this.#empty();
      } else {
        this.graph = graph;
        this.#names = names;
        this.history.push(stats);
        this.stats = stats;
        this.answers += 1;
      }
      this.problem = "";
    } catch (error) {
      if (visit === this.#visit) {
        this.refused(error);
      }
    }
  }

  /** Numbers of a run that has ended would look like those of the next one. */
  #empty() {
    this.graph = null;
    this.stats = null;
    this.history = new History();
  }

  /** Notes why a request failed. A run may end between two requests: the next answer says so. */
  refused(error) {
    if (!(error instanceof Refused)) {
      this.problem = UNREADABLE;
      throw error;
    }
    if (error.status === 401) {
      this.isTokenWrong = token() !== "";
      this.needsToken = true;
    } else if (error.status !== 409) {
      this.problem = error.message;
    }
  }

  /** Sends this token from now on. */
  async enter(text) {
    if (!isToken(text)) {
      this.isTokenWrong = true;
      return;
    }
    this.#visit += 1;
    setToken(text);
    this.needsToken = false;
    await this.#look();
  }

  /** Forgets the token and all that was shown. */
  leave() {
    this.#visit += 1;
    setToken("");
    this.about = null;
    this.#empty();
    this.isTokenWrong = false;
    this.needsToken = true;
  }

  component(name) {
    return this.#components.get(name);
  }

  source(name) {
    return this.#sources.get(name);
  }

  queue(name) {
    return this.#queues.get(name);
  }

  /** The present rate of a number of a component. */
  rate(name, number) {
    return this.answers ? this.history.ofComponent(name, number) : NaN;
  }

  edgeRate(edge, number) {
    return this.answers ? this.history.ofEdge(edge, number) : NaN;
  }

  series(name, numbers) {
    return this.answers ? this.history.series(name, numbers) : [[]];
  }
}

/** True if answers have the lists that all views need. A page that stays open for long may outlive its process. */
function isKnown(about, stats) {
  const lists = stats && [stats.components, stats.edges, stats.sources, stats.queues, stats.latencies, stats.budget?.holders];
  const isAbout = Array.isArray(about?.configurations);
  return isAbout && (about.next_run !== undefined || (lists?.every(Array.isArray) && typeof stats.dead_letters === "object"));
}

/** Values by a name in them. A search in a list for each row would take seconds for thousands of components. */
function byName(values, key) {
  return new Map((values ?? []).map((value) => [value[key], value]));
}

export const run = new Run();
