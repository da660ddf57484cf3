// Light or dark: that of the system, or the choice of the user, which stays in this browser.

import { keep, read } from "./storage.js";

const KEY = "thalweg-theme";
export const THEMES = ["system", "light", "dark"];

export function theme() {
  const kept = read(() => localStorage, KEY);
  return THEMES.includes(kept) ? kept : "system";
}

export function setTheme(name) {
  keep(() => localStorage, KEY, name);
  show();
}

/** Shows the choice. */
export function show() {
  const name = theme();
  if (name === "system") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = name;
  }
}
