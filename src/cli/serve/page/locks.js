// All locks in use: searched, sorted, and as many of them in the page as are looked at.
import { client, el, name, setText, span, sync, visible } from "./dom.js";
import { now, state } from "./store.js";

const step = 100;  // rows in the page at first, and more at a time

const columns = [
  { id: "name", title: "Name", of: (lock) => lock.name },
  { id: "kind", title: "Kind", wide: true, of: (lock) => lock.kind },
  { id: "holder", title: "Holder", of: (lock) => holderText(lock) },
  { id: "held", title: "Held for", number: true, of: (lock) => (lock.since ? -lock.since : null) },
  { id: "waiters", title: "Waiting", number: true, of: (lock) => lock.waiting },
  { id: "wait", title: "Longest wait", number: true, wide: true, of: (lock) => (lock.waiting_since ? -lock.waiting_since : null) },
];

// The view is made anew when one comes back to it.
const choice = { text: "", kind: "", by: "wait", down: true, rows: step };

export const kindText = (kind) => (kind === "shared_mutex" ? "shared mutex" : kind);

/** Who holds it, in a few words. */
export function holderText(lock) {
  if (lock.kind === "semaphore") {
    return [lock.held > 0 && `${lock.used} of ${lock.capacity} permits, ${lock.held} ${lock.held === 1 ? "holder" : "holders"}`,
      lock.expired_permits > 0 && `${lock.expired_permits} permits of dead holders`].filter(Boolean).join("; ");
  }
  if (holdersOf(lock) === 0) return "";
  if (holdersOf(lock) === 1) return client(lock.holders[0]) + (lock.holders[0].mode ? `, ${lock.holders[0].mode}` : "");
  return lock.held > 0 ? `${lock.held} readers` : `${lock.expired} dead readers`;
}

/** Live ones and dead ones. */
export const holdersOf = (lock) => lock.held + (lock.expired ?? 0);
export const isExpired = (lock) => lock.expired > 0 || lock.expired_permits > 0;
export const isAsked = (lock) => lock.holders.some((holder) => holder.asked_by !== undefined);

export const linkTo = (lock) => `#/lock/${lock.kind}/${encodeURIComponent(lock.name)}`;

function matches(lock, text) {
  if (text === "") return true;
  const has = (other) => String(other).toLowerCase().includes(text);
  return has(lock.name) || [...lock.holders, ...lock.queue].some((one) => has(one.host) || has(one.program) || has(one.note) || has(one.owner));
}

function compare(by, down) {
  const of = columns.find((column) => column.id === by).of;
  const sign = down ? -1 : 1;
  return (a, b) => {
    const left = of(a);
    const right = of(b);
    if (left === right) return a.key < b.key ? -1 : 1;
    if (left === null) return 1;  // what is not known comes last
    if (right === null) return -1;
    return (left < right ? -1 : 1) * sign;
  };
}

function makeRow(lock) {
  return el(
    "tr",
    {},
    el("td", {}, el("a", { href: linkTo(lock) }, name(lock.name))),
    el("td", { class: "wide quiet" }, kindText(lock.kind)),
    el("td", {}),
    el("td", { class: "number" }),
    el("td", { class: "number" }),
    el("td", { class: "number wide" }),
  );
}

function updateHolder(cell, lock) {
  const text = holderText(lock) + (isExpired(lock) ? "|expired" : "") + (isAsked(lock) ? "|asked" : "");
  if (cell.text_ === text) return;
  cell.text_ = text;
  cell.replaceChildren(
    holderText(lock),
    ...(isExpired(lock) ? [" ", el("span", { class: "tag bad" }, "expired")] : []),
    ...(isAsked(lock) ? [" ", el("span", { class: "tag wait" }, "asked to stop")] : []),
  );
}

function updateRow(row, lock) {
  const [, , holder, held, waiting, wait] = row.children;
  updateHolder(holder, lock);
  setText(held, lock.since ? span(now() - lock.since) : "");
  setText(waiting, lock.waiting > 0 ? String(lock.waiting) : "");
  setText(wait, lock.waiting_since ? span(now() - lock.waiting_since) : "");
}

export function locksView() {
  const totals = el("ul", { class: "totals" });
  const headings = new Map();
  const body = el("tbody");
  const empty = el("p", { class: "empty" });
  const more = el("button", { onclick: () => { choice.rows += 10 * step; update(); } });
  const search = el("input", {
    type: "search", placeholder: "Search names, hosts, programs, notes", "aria-label": "Search", value: choice.text,
    oninput: () => { choice.text = search.value; choice.rows = step; update(); },
  });
  const kinds = el(
    "select",
    { "aria-label": "Kind", onchange: () => { choice.kind = kinds.value; choice.rows = step; update(); } },
    [["", "All kinds"], ["lease", "Leases"], ["semaphore", "Semaphores"], ["shared_mutex", "Shared mutexes"]].map(([value, text]) =>
      el("option", { value, selected: value === choice.kind }, text)),
  );

  const sortBy = (column) => {
    choice.down = choice.by === column.id ? !choice.down : column.id !== "name" && column.id !== "holder" && column.id !== "kind";
    choice.by = column.id;
    update();
  };
  const head = el("tr", {}, columns.map((column) => {
    const heading = el("th", { class: [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || null },
      el("button", { onclick: () => sortBy(column) }, column.title));
    headings.set(column.id, heading);
    return heading;
  }));

  // Time spans are sorted by their beginning, so "down" is the oldest first.
  const element = el("div", {}, totals, el("div", { class: "tools" }, search, kinds),
    el("table", {}, el("thead", {}, head), body), empty, more);

  function updateTotals(all) {
    const waiting = all.reduce((sum, lock) => sum + lock.waiting, 0);
    const held = all.filter((lock) => lock.held > 0).length;
    const oldest = Math.min(...all.map((lock) => lock.waiting_since ?? Infinity));
    const items = [["held", held], ["waiting", waiting], ["longest wait", Number.isFinite(oldest) ? span(now() - oldest) : "none"]];
    const expired = all.filter(isExpired).length;
    if (expired > 0) items.push(["expired", expired]);
    if (state.cycles.length > 0) items.push(["deadlocks", state.cycles.length]);
    sync(totals, items, ([title]) => title, ([title]) => el("li", {}, el("b"), el("span", { class: "quiet" }, title)),
      (item, [, value]) => setText(item.firstChild, String(value)));
  }

  function update() {
    const all = [...state.locks.values()];
    updateTotals(all);
    for (const [id, heading] of headings) {
      if (id === choice.by) heading.setAttribute("aria-sort", choice.down ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    const text = choice.text.trim().toLowerCase();
    const found = all.filter((lock) => (choice.kind === "" || lock.kind === choice.kind) && matches(lock, text));
    found.sort(compare(choice.by, choice.down));
    sync(body, found.slice(0, choice.rows), (lock) => lock.key, makeRow, updateRow);
    empty.hidden = found.length > 0;
    setText(empty, all.length > 0 ? "No lock matches." : state.at > 0 ? "No lock is held or waited for." : "Reading …");
    more.hidden = found.length <= choice.rows;
    setText(more, `Show more: ${found.length - choice.rows} are left`);
  }
  return { element, update };
}
