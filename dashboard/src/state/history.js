// The counters of the last minutes, and the rates that follow from them.
//
// The API has counters alone, so a rate is the difference of two answers. Each answer is kept as one array of numbers. Their
// number follows from the size of the graph, so a run with thousands of sinks has a shorter history and not more memory.

/** The numbers that are kept of a component, and of an edge. */
const COMPONENT = ["rows_in", "rows_out", "errors", "bytes_in", "bytes_out", "busy_ns"];
const EDGE = ["messages", "bytes"];
/** The most answers: ten minutes. */
const MOST = 600;
/** The most bytes of all. */
const MOST_BYTES = 16 << 20;
/** Rates are those of this time: batches come at once, so those of a second would jump. */
const WINDOW_S = 5;
/** A rate over a longer time is not a present one: the page was asleep. */
const PRESENT_S = 3 * WINDOW_S;

/** The name of an edge. */
export function edgeKey({ from, output, to }) {
  return JSON.stringify([from, output, to]);
}

export class History {
  #layout = "";
  /** Where the numbers of each component and edge begin. Answers of one graph share it. */
  #places = new Map();
  /** The answers, the oldest first: the age of the run, the time of the day, the numbers and their places. */
  #samples = [];

  /** Keeps an answer of `/stats`. */
  push(stats) {
    const layout = JSON.stringify([stats.components.map(({ name }) => name), stats.edges.map(edgeKey)]);
    const last = this.#samples.at(-1);
    // Another run has begun.
    if (last && stats.uptime_s < last.age) {
      this.#samples = [];
    }
    // A reload changes the graph of a run. Components that it kept have their history still.
    if (layout !== this.#layout) {
      this.#layout = layout;
      this.#places = new Map();
      let at = 0;
      for (const { name } of stats.components) {
        this.#places.set(name, at);
        at += COMPONENT.length;
      }
      for (const edge of stats.edges) {
        this.#places.set(edgeKey(edge), at);
        at += EDGE.length;
      }
    }
    const numbers = Float64Array.from([
      ...stats.components.flatMap((component) => COMPONENT.map((name) => component[name])),
      ...stats.edges.flatMap((edge) => EDGE.map((name) => edge[name])),
    ]);
    this.#samples.push({ age: stats.uptime_s, time: Date.parse(stats.time) / 1e3, numbers, places: this.#places });
    const most = Math.max(WINDOW_S * 2, Math.min(MOST, Math.floor(MOST_BYTES / Math.max(1, numbers.byteLength))));
    // A graph that has grown leaves room for fewer.
    this.#samples.splice(0, this.#samples.length - most);
  }

  /** The present rate of a number of a component. NaN until there are two answers. */
  ofComponent(name, number) {
    return this.#present(name, COMPONENT.indexOf(number));
  }

  /** The present rate of a number of an edge. */
  ofEdge(edge, number) {
    return this.#present(edgeKey(edge), EDGE.indexOf(number));
  }

  /** Times and rates of a component since the first answer: an array for the times, and one for each number. */
  series(name, numbers) {
    const of = (number) => this.#samples.map((_, sample) => this.#rate(sample, name, COMPONENT.indexOf(number)));
    const known = this.#places.has(name);
    // By the age of the run, because the clock of its machine may be set back.
    const last = this.#samples.at(-1);
    return [this.#samples.map(({ age }) => last.time - (last.age - age)), ...numbers.map((number) => (known ? of(number) : []))];
  }

  #present(key, offset) {
    const [before, last] = this.#samples.slice(-2);
    return last && last.age - before.age <= PRESENT_S ? this.#rate(this.#samples.length - 1, key, offset) : NaN;
  }

  /** The rate at a sample, over the window before it. A counter that falls has begun again, and the window with it. */
  #rate(sample, key, offset) {
    const of = ({ numbers, places }) => numbers[places.get(key) + offset];
    const end = this.#samples[sample];
    let first = sample;
    while (first > 0 && end.age - this.#samples[first].age < WINDOW_S) {
      const [before, here] = [this.#samples[first - 1], this.#samples[first]];
      // After a pause of the page, what was before it does not count.
      const isPause = first < sample && here.age - before.age > PRESENT_S;
      if (isPause || !(of(before) <= of(here))) {
        break;
      }
      first -= 1;
    }
    const begin = this.#samples[first];
    if (!end || end.age <= begin.age) {
      return NaN;
    }
    return (of(end) - of(begin)) / (end.age - begin.age);
  }
}
