// One lock: its holders, its queue, its history; and breaking it, where the server allows that.
import { client, clock, el, name, ownerOf, setText, span, svg, sync, visible } from "./dom.js";
import { holdersOf, isExpired, kindText } from "./locks.js";
import { now, post, read, state } from "./store.js";

const listed = 1000;  // as many as the server sends

const detail = (party) => [party.note, ownerOf(party) && `owner ${party.owner}`, party.thread && `thread ${party.thread}`].filter(Boolean).map(visible).join(", ");

function holderRow(lock, holder) {
  const tags = [holder.expired && el("span", { class: "tag bad" }, "expired"),
    holder.asked_by !== undefined && el("span", { class: "tag wait" },
      holder.asked_by ? `asked to stop by ${visible(holder.asked_by)}${holder.reason ? `: ${visible(holder.reason)}` : ""}`
        : `asked to stop${holder.reason ? `, ${visible(holder.reason)}` : ""}`)];
  return el("tr", {},
    el("td", {}, client(holder), " ", ...tags.filter(Boolean)),
    el("td", { class: "number" }),
    el("td", {}, holder.mode ?? (lock.kind === "semaphore" ? `${holder.permits} permits` : "")),
    el("td", { class: "number wide" }, holder.token),
    el("td", { class: "wide" }, detail(holder)),
    el("td", { class: "number" }, state.about?.breaks && el("button", { class: "bad", onclick: () => breakDialog(lock, holder) }, "Break …")));
}

function waiterRow(lock, waiter, position) {
  const wants = waiter.mode ?? (lock.kind === "semaphore" ? `${waiter.permits} permits` : "");
  return el("tr", {},
    el("td", { class: "number" }, String(position)),
    el("td", {}, client(waiter)),
    el("td", { class: "number" }),
    el("td", {}, [wants, waiter.priority && `priority ${waiter.priority}`, waiter.locks && `${waiter.locks} locks at once`].filter(Boolean).join(", ")),
    el("td", { class: "wide" }, detail(waiter)));
}

/** Asks how, and does it. */
function breakDialog(lock, holder) {
  const said = el("p", { role: "alert", class: "quiet" });
  const how = (value, text, checked) => el("label", {}, el("input", { type: "radio", name: "how", value, checked }), el("span", {}, text));
  const minutes = el("input", { type: "number", name: "minutes", min: "0.1", step: "0.1", value: "10", "aria-label": "Minutes" });
  const reason = el("input", { name: "reason", maxlength: "300", placeholder: "Why you ask, for the holder and the history", "aria-label": "Reason" });
  const submit = el("button", { class: "bad" }, "Break");
  const dialog = el("dialog", { onclose: () => dialog.remove() });
  const form = el("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      const chosen = new FormData(form).get("how");
      const order = { name: lock.name, kind: lock.kind, token: holder.token, how: chosen };
      if (chosen !== "now" && reason.value) order.reason = reason.value;
      if (chosen === "within") order.within_ms = Math.round(Number(minutes.value) * 60000);
      try {
        const { outcome, within_ms } = await post("api/break", order);
        setText(said, outcome === "asked" ? `The holder is asked. The lock is free within ${span(within_ms)} at the latest.`
          : outcome === "taken" ? "The lock was taken from its holder." : "That holder does not hold it any more.");
      } catch (problem) {
        setText(said, visible(problem.message));
        submit.disabled = false;
      }
    },
  },
  el("h1", {}, "Break ", name(lock.name)),
  el("p", { class: "quiet" }, `Held by ${client(holder)} for ${span(now() - holder.since)}.`),
  how("stop", "Ask the holder to stop. The lock passes on when it has, or when its session would have expired.", true),
  how("within", el("span", {}, "Let it finish within ", minutes, " minutes.")),
  reason,
  how("now", "Take the lock now. The next holder begins while this one still works; its token is refused from then on."),
  said,
  el("div", { class: "actions" }, el("button", { type: "button", onclick: () => dialog.close() }, "Close"), submit));
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
}

// --- history: the server says what the holds were

const colours = { held: "open", forced: "forced", altered: "unknown", unknown: "unknown",
  released: "released", handed_over: "released", reclaimed: "released" };
const colourOf = (one) => colours[one.ended] ?? "expired";

/** Times as numbers; `start` of a hold that began before the records is that of its first one. */
const timed = (one) => ({ ...one, start: Date.parse(one.from ?? one.before), end: one.to ? Date.parse(one.to) : null });

const holderOf = (one) => (one.host ? client(one) : `session ${one.session}`);

function lengthText(one) {
  if (one.ended === "held") return one.from ? span(now() - one.start) : "";
  return one.for_ms === undefined ? "" : span(one.for_ms);
}

/** A bar for each hold, one line for each of the latest clients. */
function timeline(holds) {
  const lines = [...new Set(holds.map(holderOf))].slice(0, 12);
  const shown = holds.filter((one) => lines.includes(holderOf(one)));
  const first = Math.min(...shown.map((one) => Math.min(one.start, one.end ?? one.start)));
  const last = Math.max(now(), ...shown.map((one) => one.end ?? 0));
  const width = 1000, left = 260, high = 24, top = 8;
  const x = (at) => left + ((at - first) / Math.max(last - first, 1)) * (width - left - 10);
  const height = top + lines.length * high + 26;
  const picture = svg("svg", { class: "timeline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Holds over time" });
  lines.forEach((line, row) => {
    const y = top + row * high;
    picture.append(svg("line", { class: "axis", x1: left, x2: width - 10, y1: y + high - 3, y2: y + high - 3 }),
      svg("text", { x: 4, y: y + 15 }, line.length > 38 ? `${line.slice(0, 37)}…` : line));
  });
  for (const one of shown) {
    const y = top + lines.indexOf(holderOf(one)) * high;
    const start = one.from ? one.start : first;
    const end = one.ended === "held" ? last : one.end ?? one.start;
    picture.append(svg("rect", { class: `bar ${colourOf(one)}`, x: x(start), y: y + 4, width: Math.max(x(end) - x(start), 1.5), height: 14, rx: 2 },
      svg("title", {}, [holderOf(one), clock(one.start, now()), lengthText(one), visible(one.text)].filter(Boolean).join(", "))));
  }
  picture.append(svg("text", { class: "quiet", x: left, y: height - 6 }, clock(first, now())),
    svg("text", { class: "quiet", x: width - 10, y: height - 6, "text-anchor": "end" }, clock(last, now())));
  return picture;
}

function holdRow(one) {
  return el("tr", {},
    el("td", {}, (one.from ? "" : "before ") + clock(one.start, now())),
    el("td", {}, one.end === null ? "" : clock(one.end, one.start)),
    el("td", { class: "number" }, lengthText(one)),
    el("td", {}, holderOf(one)),
    el("td", {}, visible(one.text)),
    el("td", { class: "number wide" }, one.token ?? ""));
}

async function showHistory(into, lock) {
  try {
    const { holds: all } = await read(`api/history?name=${encodeURIComponent(lock.name)}`);
    const holds = all.filter((one) => one.of === lock.kind).map(timed).reverse();
    if (holds.length === 0) {
      into.replaceChildren(el("p", { class: "quiet" }, "Nothing is recorded of this lock."));
      return;
    }
    const legend = el("div", { class: "legend" }, [["released", "released or handed over"], ["expired", "session or deadline passed"], ["cycle", "broken"], ["holds", "still held"]]
      .map(([kind, text]) => el("span", {}, el("i", { class: kind }), text)));
    into.replaceChildren(el("div", { class: "picture" }, timeline(holds)), legend,
      el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "From"), el("th", {}, "To"), el("th", { class: "number" }, "For"), el("th", {}, "Holder"), el("th", {}, "How it ended"), el("th", { class: "number wide" }, "Token"))),
        el("tbody", {}, holds.slice(0, 100).map(holdRow))));
  } catch (problem) {
    into.replaceChildren(el("p", { class: "quiet" }, visible(problem.message)));
  }
}

/** The transactions that keep the lock's rows locked: it can be neither broken nor granted before they end. */
function blockersView(lockName) {
  const title = el("p");
  const list = el("ul");
  const alarm = el("div", { class: "alarm", hidden: true }, title, list);
  const note = el("p", { class: "quiet", hidden: true });
  const ask = el("button", { hidden: true, onclick: () => look() }, "Look for transactions that keep it locked");
  const element = el("div", {}, alarm, note, ask);
  let heard = -Infinity;
  let looking = false;

  function show(found, more, at) {
    setText(title, `Its rows are locked, seen at ${at}. Until that ends it can be neither broken nor passed on:`);
    sync(list, found, (one) => `${one.pid} ${one.gid}`, () => el("li"), (row, one) => setText(row, visible(one.text)));
    alarm.hidden = found.length === 0;
    setText(note, visible(more));
    note.hidden = more === "";
  }

  async function look() {
    if (looking) return;
    looking = ask.disabled = true;
    try {
      const said = await read(`api/blockers?name=${encodeURIComponent(lockName)}`);
      const at = clock(now() - said.read_ms_ago, now());
      const none = state.about?.blockers_on_request && said.transactions.length === 0 && !said.note;
      show(said.transactions, none ? `No transaction kept it locked at ${at}.` : said.note, at);
    } catch (problem) {
      show([], `Whether a transaction keeps it locked could not be read: ${problem.message}`);
    } finally {
      heard = performance.now();
      looking = ask.disabled = false;
    }
  }

  function update() {
    if (!state.about) return;
    ask.hidden = !state.about.blockers_on_request;
    const isDue = performance.now() - heard >= state.about.every_ms && !document.hidden;
    if (isDue && !state.about.blockers_on_request) look();
  }
  return { element, update };
}

export function lockView(kind, lockName) {
  const key = `${kind}:${lockName}`;
  const summary = el("p", { class: "quiet" });
  const holders = el("tbody");
  const queue = el("tbody");
  const queueTitle = el("h2");
  const history = el("div", {}, el("p", { class: "quiet" }, "Reading …"));
  const blockers = blockersView(lockName);
  const holderTable = el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Holder"), el("th", { class: "number" }, "For"), el("th", {}, ""), el("th", { class: "number wide" }, "Token"), el("th", { class: "wide" }, "Note"), el("th", {}, ""))), holders);
  const queueTable = el("table", {}, el("thead", {}, el("tr", {}, el("th", { class: "number" }, "Position"), el("th", {}, "Waiter"), el("th", { class: "number" }, "Waits for"), el("th", {}, "Wants"), el("th", { class: "wide" }, "Note"))), queue);
  const element = el("div", {}, el("p", {}, el("a", { href: "#/" }, "← all locks")),
    el("h1", {}, name(lockName), " ", el("span", { class: "tag" }, kindText(kind))), summary,
    blockers.element, el("h2", {}, "Holders"), holderTable, queueTitle, queueTable, el("h2", {}, "History"), history);
  let whole = null;     // with more holders and waiters than the stream sends
  let wholeOf = null;   // the row it was read for
  let recordedFor = null;  // the holders when the history was read

  async function readWhole(row) {
    wholeOf = row;
    try {
      whole = await read(`api/lock?kind=${encodeURIComponent(kind)}&name=${encodeURIComponent(lockName)}`);
    } catch {
      whole = null;
    }
    update();
  }

  function update() {
    blockers.update();
    const row = state.locks.get(key);
    // Anew when a holder changes, and before the first answer nothing is known.
    const holdersNow = state.at === 0 ? recordedFor : (row?.holders ?? []).map((one) => [one.grant_id, one.expired, one.asked_by, one.reason]).join();
    if (holdersNow !== recordedFor) {
      recordedFor = holdersNow;
      showHistory(history, { name: lockName, kind });
    }
    if (row && row !== wholeOf && (holdersOf(row) > row.holders.length || row.waiting > row.queue.length)) readWhole(row);
    const lock = row && whole && wholeOf === row ? whole : row ?? { name: lockName, kind, held: 0, waiting: 0, holders: [], queue: [] };
    const texts = [
      lock.capacity !== undefined && `${lock.used} of ${lock.capacity} permits are used.`,
      lock.expired_permits > 0 && `${lock.expired_permits} are of dead holders.`,
      lock.held === 0 && (isExpired(lock) ? "Nothing alive holds it: the next that takes it, or a reaper, ends what has expired." : "It is free."),
      holdersOf(lock) > listed && `The first ${listed} holders are listed.`,
      lock.waiting > listed && `The first ${listed} waiters are listed.`,
    ];
    setText(summary, texts.filter(Boolean).join(" "));
    summary.hidden = summary.textContent === "";
    holderTable.hidden = holdersOf(lock) === 0;
    queueTable.hidden = lock.waiting === 0;
    setText(queueTitle, lock.waiting === 0 ? "Queue: empty" : `Queue: ${lock.waiting}`);
    const identity = (one) => JSON.stringify([one.grant_id, one.token, one.mode, one.expired, one.asked_by, one.reason, one.permits]);
    sync(holders, lock.holders, identity, (one) => holderRow(lock, one), (line, one) => setText(line.children[1], span(now() - one.since)));
    sync(queue, lock.queue.map((one, index) => [one, index + 1]), ([one, position]) => `${one.grant_id} ${position}`,
      ([one, position]) => waiterRow(lock, one, position), (line, [one]) => setText(line.children[2], span(now() - one.since)));
  }
  return { element, update };
}
