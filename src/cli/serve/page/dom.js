// Builds and updates elements. Texts of other programs are only ever set as text, never as markup.

const namespace = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element. `on…` attributes are functions. */
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
/** An SVG element. */
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(namespace, tag), attributes, children);

// Control characters, line separators, and what turns or hides text: as the tool's escaped().
const misleading = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** A text of another program, for a single line. */
export const visible = (text) => String(text).replace(misleading, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

export const name = (text) => el("span", { class: "name" }, visible(text));

/** Sets a text only if it differs, so that a selection in it survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Makes the children of `parent` those of `items`, in their order, and keeps the elements of items that were
 * there before: focus and selection survive.
 */
export function sync(parent, items, keyOf, make, update) {
  const before = parent.rows_ ?? new Map();
  const after = new Map(items.map((item) => [keyOf(item), item]));
  // First, so that the rows behind one that goes need not move: an element that moves loses the focus.
  for (const [key, row] of before) if (!after.has(key)) row.remove();
  let next = parent.firstElementChild;
  for (const [key, item] of after) {
    const row = before.get(key) ?? make(item);
    after.set(key, row);
    update(row, item);
    if (row === next) next = next.nextElementSibling;
    else parent.insertBefore(row, next);
  }
  parent.rows_ = after;
}

const two = (number) => String(number).padStart(2, "0");

/** A time span in milliseconds, in its two greatest units. */
export function span(ms) {
  if (!(ms >= 0)) return "0s";
  if (ms < 1000) return `${Math.round(ms)}ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}m${two(Math.floor(seconds % 60))}s`;
  const hours = Math.floor(minutes / 60);
  return hours < 24 ? `${hours}h${two(minutes % 60)}m` : `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}

/** The local time of day, with the date if that is another than `now`'s. */
export function clock(ms, now) {
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === new Date(now).toDateString() ? time : `${date} ${time}`;
}

/** The name that its program gave it; empty if it gave none. */
export const ownerOf = (party) => (party.owner.startsWith("random:") ? "" : party.owner);

/** "program[pid]@host" of a holder, waiter, session or record. */
export const client = (party) => visible(`${party.program}[${party.pid}]@${party.host}`);
