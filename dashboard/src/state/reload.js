// The difference between the configuration that runs and its file, as the API has it.

/** What happens to components, those first that a reload touches. */
export const KINDS = [
  ["changed", "end and begin again with other options"],
  ["restarted", "end and begin again, because they are connected with a changed one"],
  ["added", "begin"],
  ["removed", "end, after what they have in flight is delivered"],
  ["kept", "run on"],
];

/** True if nothing has to be done. */
export function isEmpty(difference) {
  return KINDS.every(([kind]) => kind === "kept" || !difference[kind]?.length);
}

/** True if both name the same components. The kept ones are all others. */
export function isSame(one, other) {
  return KINDS.every(([kind]) => JSON.stringify([...(one[kind] ?? [])].sort()) === JSON.stringify([...(other[kind] ?? [])].sort()));
}

/** A difference in one line: `1 changed, 2 kept`. */
export function summary(difference) {
  if (isEmpty(difference)) {
    return "nothing has changed";
  }
  const parts = KINDS.filter(([kind]) => difference[kind]?.length).map(([kind]) => `${difference[kind].length} ${kind}`);
  return parts.join(", ");
}

/** The end of the reload with a number, from the status in `about`: null while it goes on. */
export function endOf(number, status) {
  if (!status || status.ended < number) {
    return null;
  }
  return { failure: status.failure, difference: status.failure ? null : status.difference };
}
