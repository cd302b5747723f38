// One lock: its holders, its queue, its history; and breaking it, where the server allows that.
import { client, clock, el, name, ownerOf, setText, span, svg, sync, visible } from "./dom.js";
import { kindText } from "./locks.js";
import { now, post, read, state } from "./store.js";

const listed = 1000;  // as many as the server sends

const detail = (party) => [party.note, ownerOf(party) && `owner ${party.owner}`, party.thread && `thread ${party.thread}`].filter(Boolean).map(visible).join(", ");

function holderRow(lock, holder) {
  const tags = [holder.expired && el("span", { class: "tag bad" }, "expired"),
    holder.asked_by !== undefined && el("span", { class: "tag wait" },
      `asked to stop${holder.asked_by ? ` by ${visible(holder.asked_by)}` : ""}${holder.reason ? `: ${visible(holder.reason)}` : ""}`)];
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
  const reason = el("input", { name: "reason", maxlength: "300", placeholder: "Reason, shown to the holder", "aria-label": "Reason" });
  const submit = el("button", { class: "bad" }, "Break");
  const dialog = el("dialog", { onclose: () => dialog.remove() });
  const form = el("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      const chosen = new FormData(form).get("how");
      const order = { name: lock.name, kind: lock.kind, token: holder.token, how: chosen };
      if (chosen === "within") Object.assign(order, { within_ms: Math.round(Number(minutes.value) * 60000), reason: reason.value });
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

// --- history

const begins = new Set(["granted", "handed_over", "taken_over", "reclaimed"]);
const endOf = { released: "released", expired: "expired", forced: "forced", taken_over: "expired", session_ended: "released", session_expired: "expired" };

/** The holds that the records tell of, the latest first. */
function holdsIn(records) {
  const open = new Map();
  const all = [];
  for (const record of records) {
    const at = Date.parse(record.at);
    const ended = record.kind === "taken_over" ? [...open.values()].filter((one) => one.session === record.previous_session)
      : endOf[record.kind] && record.grant_id ? [open.get(record.grant_id)].filter(Boolean) : [];
    for (const one of ended) {
      one.end = at;
      one.how = endOf[record.kind];
      one.by = record.kind === "forced" ? record : null;
      open.delete(one.grant_id);
    }
    if (!begins.has(record.kind)) continue;
    const one = { grant_id: record.grant_id, session: record.session, start: at, end: null, how: "open", begun: record };
    open.set(one.grant_id, one);
    all.push(one);
  }
  return all.reverse();
}

const endings = { open: "still held", released: "released", expired: "ended with its session or deadline", forced: "broken" };

function holdText(one) {
  const by = one.by?.note || one.by?.db_user ? ` by ${visible(one.by.note ?? one.by.db_user)}` : "";
  return `${endings[one.how]}${by}`;
}

/** A bar for each hold, one line for each of the latest clients. */
function timeline(holds) {
  const lines = [...new Set(holds.map((one) => client(one.begun)))].slice(0, 12);
  const shown = holds.filter((one) => lines.includes(client(one.begun)));
  const first = Math.min(...shown.map((one) => one.start));
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
    const y = top + lines.indexOf(client(one.begun)) * high;
    const end = one.end ?? last;
    picture.append(svg("rect", { class: `bar ${one.how}`, x: x(one.start), y: y + 4, width: Math.max(x(end) - x(one.start), 1.5), height: 14, rx: 2 },
      svg("title", {}, `${client(one.begun)}: ${clock(one.start, now())}, ${span(end - one.start)}, ${holdText(one)}`)));
  }
  picture.append(svg("text", { class: "quiet", x: left, y: height - 6 }, clock(first, now())),
    svg("text", { class: "quiet", x: width - 10, y: height - 6, "text-anchor": "end" }, clock(last, now())));
  return picture;
}

async function showHistory(into, lock) {
  try {
    const { records } = await read(`api/history?name=${encodeURIComponent(lock.name)}`);
    const holds = holdsIn(records.filter((record) => (record.of ?? "lease") === lock.kind));
    if (holds.length === 0) {
      into.replaceChildren(el("p", { class: "quiet" }, "Nothing is recorded of this lock."));
      return;
    }
    const legend = el("div", { class: "legend" }, [["released", "released"], ["expired", "session or deadline over"], ["cycle", "broken"], ["holds", "still held"]]
      .map(([kind, text]) => el("span", {}, el("i", { class: kind }), text)));
    const rows = holds.slice(0, 100).map((one) => el("tr", {},
      el("td", {}, clock(one.start, now())),
      el("td", { class: "number" }, span((one.end ?? now()) - one.start)),
      el("td", {}, client(one.begun)),
      el("td", {}, holdText(one)),
      el("td", { class: "number wide" }, one.begun.token ?? "")));
    into.replaceChildren(el("div", { class: "picture" }, timeline(holds)), legend,
      el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "From"), el("th", { class: "number" }, "For"), el("th", {}, "Holder"), el("th", {}, "How it ended"), el("th", { class: "number wide" }, "Token"))),
        el("tbody", {}, rows)));
  } catch (problem) {
    into.replaceChildren(el("p", { class: "quiet" }, visible(problem.message)));
  }
}

export function lockView(kind, lockName) {
  const key = `${kind}:${lockName}`;
  const summary = el("p", { class: "quiet" });
  const holders = el("tbody");
  const queue = el("tbody");
  const queueTitle = el("h2");
  const history = el("div", {}, el("p", { class: "quiet" }, "Reading …"));
  const holderTable = el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Holder"), el("th", { class: "number" }, "For"), el("th", {}, ""), el("th", { class: "number wide" }, "Token"), el("th", { class: "wide" }, "Note"), el("th", {}, ""))), holders);
  const queueTable = el("table", {}, el("thead", {}, el("tr", {}, el("th", { class: "number" }, "Position"), el("th", {}, "Waiter"), el("th", { class: "number" }, "Waits for"), el("th", {}, "Wants"), el("th", { class: "wide" }, "Note"))), queue);
  const element = el("div", {}, el("p", {}, el("a", { href: "#/" }, "← all locks")),
    el("h1", {}, name(lockName), " ", el("span", { class: "tag" }, kindText(kind))), summary,
    el("h2", {}, "Holders"), holderTable, queueTitle, queueTable, el("h2", {}, "History"), history);
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
    const row = state.locks.get(key);
    // Anew when a holder changes, and before the first answer nothing is known.
    const holdersNow = state.at === 0 ? recordedFor : (row?.holders ?? []).map((one) => one.grant_id).join();
    if (holdersNow !== recordedFor) {
      recordedFor = holdersNow;
      showHistory(history, { name: lockName, kind });
    }
    if (row && row !== wholeOf && (row.held > row.holders.length || row.waiting > row.queue.length)) readWhole(row);
    const lock = row && whole && wholeOf === row ? whole : row ?? { name: lockName, kind, held: 0, waiting: 0, holders: [], queue: [] };
    const over = lock.held === 0 && lock.used > 0;
    const texts = [
      lock.capacity !== undefined && `${lock.used} of ${lock.capacity} permits are used.`,
      over && "Their holds are over: the next that takes some, or a reaper, returns them.",
      lock.held === 0 && !over && "It is free.",
      lock.held > listed && `The first ${listed} holders are listed.`,
      lock.waiting > listed && `The first ${listed} waiters are listed.`,
    ];
    setText(summary, texts.filter(Boolean).join(" "));
    summary.hidden = summary.textContent === "";
    holderTable.hidden = lock.held === 0;
    queueTable.hidden = lock.waiting === 0;
    setText(queueTitle, lock.waiting === 0 ? "Queue: empty" : `Queue: ${lock.waiting}`);
    const identity = (one) => JSON.stringify([one.grant_id, one.token, one.mode, one.expired, one.asked_by, one.reason, one.permits]);
    sync(holders, lock.holders, identity, (one) => holderRow(lock, one), (line, one) => setText(line.children[1], span(now() - one.since)));
    sync(queue, lock.queue.map((one, index) => [one, index + 1]), ([one, position]) => `${one.grant_id} ${position}`,
      ([one, position]) => waiterRow(lock, one, position), (line, [one]) => setText(line.children[2], span(now() - one.since)));
  }
  return { element, update };
}
