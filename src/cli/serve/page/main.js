import { clock, el, setText, visible } from "./dom.js";
import { lockView } from "./lock.js";
import { locksView } from "./locks.js";
import { sessionsView } from "./sessions.js";
import { fresh, now, overdue, run, setToken, state } from "./store.js";
import { waitsView } from "./waits.js";

const main = document.querySelector("main");
const status = document.getElementById("status");
const problem = document.getElementById("problem");
let view = null;  // { element, update() }
let asking = false;

/** What a person typed may be no encoding. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** "#/lock/<kind>/<name>" and so on. */
function route() {
  const [, where = "", kind = "", name = ""] = location.hash.split("/");
  if (where === "lock") return ["locks", lockView(decoded(kind), decoded(name))];
  if (where === "waits") return ["waits", waitsView()];
  if (where === "sessions") return ["sessions", sessionsView()];
  return ["locks", locksView()];
}

function open() {
  if (asking) return;
  const [tab, made] = route();
  view = made;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === tab) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.element);
  update();
}

function update() {
  setText(document.getElementById("database"), visible(state.about?.database ?? ""));
  status.className = fresh() ? "live" : "lost";
  const shown = state.at > 0 ? clock(state.at, Date.now()) : "never";
  setText(status, fresh() ? clock(now(), now()) : state.live ? `as of ${shown}` : state.at > 0 ? `no connection to rowlock serve, as of ${shown}` : "no connection to rowlock serve");
  const texts = [];
  if (state.refusal) texts.push(visible(state.refusal));
  if (state.live && overdue() > 0) texts.push("The database has not answered for a while; what is shown is older.");
  if (state.problem) texts.push(`The database could not be read; what is shown is older. ${visible(state.problem)}`);
  if (state.more) texts.push("There are more locks than are shown.");
  if (state.onlyLeases) texts.push("This database user may read leases alone.");
  if (!state.searched) texts.push("There are too many waiters to look for deadlock cycles.");
  problem.hidden = texts.length === 0;
  setText(problem, texts.join(" "));
  if (!asking) view?.update();
}

/** Asks for the token, and resolves when there is one. */
function askForToken(refused) {
  asking = true;
  return new Promise((done) => {
    const token = el("input", { type: "password", name: "token", autocomplete: "off", required: true, "aria-label": "Token" });
    const form = el(
      "form",
      {
        class: "login",
        onsubmit: (event) => {
          event.preventDefault();
          setToken(token.value.trim());
          asking = false;
          open();
          done();
        },
      },
      el("h1", {}, "rowlock"),
      el("p", {}, "Paste the token: the first line of the file that --token-file names."),
      token,
      el("button", {}, "Show the locks"),
      el("p", { class: "quiet" }, visible(refused.message)),
    );
    main.replaceChildren(form);
    token.focus();
  });
}

window.addEventListener("hashchange", open);
open();
setInterval(update, 1000);
run(update, askForToken);
