// What a tab or a browser keeps. Some browsers refuse it, depending on their settings: it then lasts until the page is left.

const memory = new Map();

/** Reads a text. Even naming the storage of a browser that refuses it is an error, so it is given as a function. */
export function read(storage, key) {
  try {
    return storage().getItem(key);
  } catch {
    return memory.get(key) ?? null;
  }
}

/** Keeps a text. An empty one is removed. */
export function keep(storage, key, text) {
  try {
    if (text) {
      storage().setItem(key, text);
    } else {
      storage().removeItem(key);
    }
  } catch {
    memory.set(key, text);
  }
}
