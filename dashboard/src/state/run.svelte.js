// What is known of the process: its latest answers, and the history of this tab.

import { get, Refused, setToken, token } from "./api.js";
import { edgeKey, History } from "./history.js";

const EVERY_MS = 1000;

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
  history = new History();
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
      const stats = about.next_run === undefined ? await get("/stats") : null;
      // The graph may be another one in the same run.
      const names = JSON.stringify([stats?.components.map(({ name, kind }) => [name, kind]), stats?.edges.map(edgeKey)]);
      const isOther = stats && (!this.graph || names !== this.#names || stats.uptime_s < (this.stats?.uptime_s ?? 0));
      const graph = isOther ? await get("/graph") : this.graph;
      // The token may have been forgotten meanwhile.
      if (visit !== this.#visit) {
        return;
      }
      this.about = about;
      if (stats) {
        this.graph = graph;
        this.#names = names;
        this.history.push(stats);
        this.stats = stats;
        this.answers += 1;
      }
      this.problem = "";
    } catch (error) {
      this.refused(error);
    }
  }

  /** Notes why a request failed. A run may end between two requests: the next answer says so. */
  refused(error) {
    if (!(error instanceof Refused)) {
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
    setToken(text);
    this.needsToken = false;
    await this.#look();
  }

  /** Forgets the token and all that was shown. */
  leave() {
    this.#visit += 1;
    setToken("");
    this.about = null;
    this.graph = null;
    this.stats = null;
    this.history = new History();
    this.isTokenWrong = false;
    this.needsToken = true;
  }

  component(name) {
    return this.stats?.components.find((component) => component.name === name);
  }

  source(name) {
    return this.stats?.sources.find((source) => source.name === name);
  }

  queue(name) {
    return this.stats?.queues.find((queue) => queue.to === name);
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

export const run = new Run();
