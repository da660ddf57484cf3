// The view, as the part of the address behind `#`: links, the back button and bookmarks work, and the server sees none of it.

class Place {
  #hash = $state(location.hash);

  constructor() {
    addEventListener("hashchange", () => (this.#hash = location.hash));
  }

  /** The view and, for some, what it shows. */
  get parts() {
    const [view, ...rest] = this.#hash.replace(/^#\/?/, "").split("?")[0].split("/");
    return { view: view || "overview", name: decoded(rest.join("/")) };
  }

  /** A parameter of the view. */
  parameter(name) {
    return new URLSearchParams(this.#hash.split("?")[1] ?? "").get(name) ?? "";
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const place = new Place();

export function toComponent(name) {
  return `#/component/${encodeURIComponent(name)}`;
}
