// Rows of a table that may have thousands.

/** The most rows that are shown at once: the page is drawn again each second. */
export const MOST_ROWS = 200;

/** The rows whose texts have all words. */
export function matching(rows, search, textsOf) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) {
    return rows;
  }
  return rows.filter((row) => {
    const text = textsOf(row).filter(Boolean).join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
