// The clients' sessions. They are read when they are looked at: each heartbeat changes one.
import { client, clock, el, ownerOf, setText, span, sync, visible } from "./dom.js";
import { read, state } from "./store.js";

const shown = 500;

function makeRow(session) {
  return el("tr", {}, el("td", {}, client(session), " ", el("span", { class: "tag bad", hidden: true }, "expired")),
    el("td", { class: "wide" }, visible(ownerOf(session))), el("td", { class: "number" }), el("td", { class: "number" }),
    el("td", { class: "number wide" }), el("td", { class: "number wide" }, session.id));
}

export function sessionsView() {
  const body = el("tbody");
  const summary = el("p", { class: "quiet" }, "Reading …");
  let text = "";
  let seen = null;
  let reading = false;
  const search = el("input", { type: "search", placeholder: "Search hosts, programs, owners", "aria-label": "Search", oninput: () => { text = search.value.trim().toLowerCase(); show(); } });
  const element = el("div", {}, el("div", { class: "tools" }, search), summary,
    el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Client"), el("th", { class: "wide" }, "Owner"), el("th", { class: "number" }, "Open for"),
      el("th", { class: "number" }, "Expires in"), el("th", { class: "number wide" }, "Heartbeats"), el("th", { class: "number wide" }, "Session"))), body));

  function show() {
    if (seen === null) return;
    const { at, sessions } = seen;
    const found = sessions.filter((one) => text === "" || `${one.host} ${one.program} ${one.owner} ${one.id}`.toLowerCase().includes(text));
    found.sort((a, b) => a.expires - b.expires || (a.id < b.id ? -1 : 1));
    const expired = sessions.filter((one) => one.expires <= at).length;
    setText(summary, `${sessions.length} sessions at ${clock(at, at)}${expired ? `, ${expired} of them expired` : ""}; those that expire first come first${found.length > shown ? `; ${shown} are shown` : ""}`);
    sync(body, found.slice(0, shown), (one) => one.id, makeRow, (row, one) => {
      const over = one.expires <= at;
      row.children[0].lastElementChild.hidden = !over;
      setText(row.children[2], span(at - one.opened));
      setText(row.children[3], over ? `${span(at - one.expires)} ago` : span(one.expires - at));
      setText(row.children[4], String(one.heartbeats));
    });
  }

  async function update() {
    if (reading || (seen && performance.now() - seen.heard < (state.about?.every_ms ?? 2000))) return;
    reading = true;
    try {
      seen = { ...(await read("api/sessions")), heard: performance.now() };
      show();
    } catch (problem) {
      setText(summary, visible(problem.message));
    } finally {
      reading = false;
    }
  }
  return { element, update };
}
