// What the server has said: all locks in use, kept up to date by its stream of events.

const tokenKey = "rowlock token";

export const state = {
  about: null,
  locks: new Map(),
  cycles: [],
  at: 0,          // the database's clock in ms, when it was read
  heard: 0,       // performance.now() when that arrived
  live: false,
  problem: null,  // why the database could not be read
  refusal: null,  // why this server does not answer
  more: false,
  onlyLeases: false,
  searched: true,  // whether deadlock cycles were looked for
};

/** For how long nothing was read, in ms, beyond what is usual. */
export function overdue() {
  const usual = 3 * (state.about?.every_ms ?? 2000) + 3000;
  return state.heard === 0 ? 0 : Math.max(performance.now() - state.heard - usual, 0);
}

/** Whether the page shows what the database says now. */
export const fresh = () => state.live && !state.problem && overdue() === 0;

/** The database's clock; while nothing is read, when it was read last. */
export const now = () => (fresh() ? state.at + (performance.now() - state.heard) : state.at);

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setToken(token) {
  if (token) sessionStorage.setItem(tokenKey, token);
  else sessionStorage.removeItem(tokenKey);
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(tokenKey);
  const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, said.error?.message ?? `the server answered ${answer.status}`);
}

export const read = async (path) => (await request(path)).json();

export const post = async (path, body) =>
  (await request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();

function take(event) {
  if (event.full) state.locks = new Map();
  for (const key of event.removed) state.locks.delete(key);
  for (const lock of event.locks) state.locks.set(lock.key, lock);
  state.cycles = event.cycles;
  state.at = event.at;
  state.heard = performance.now();
  state.problem = event.problem;
  state.refusal = null;
  state.more = event.more;
  state.onlyLeases = event.only_leases;
  state.searched = event.searched;
  state.live = true;
}

const silence = 25000;  // the server says something every 10 s

// Not EventSource: that can send no token but in a URL or a cookie.
async function follow(changed) {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), silence);
  const body = (await request("api/events", { signal: abort.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await body.read();
    clearTimeout(timer);
    if (done) return;
    timer = setTimeout(() => abort.abort(), silence);
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: ")) continue;
      take(JSON.parse(event.slice("data: ".length)));
      changed();
    }
  }
}

/** Follows the server for ever. `refused` gets a Refused that a token could mend, and resolves when there is one. */
export async function run(changed, refused) {
  for (let pause = 500; ; pause = Math.min(2 * pause, 10000)) {
    try {
      state.about = await read("api/about");
      await follow(() => {
        pause = 500;
        changed();
      });
    } catch (problem) {
      if (problem instanceof Refused && problem.status === 401) {
        setToken("");
        await refused(problem);
        continue;
      }
      state.refusal = problem instanceof Refused ? problem.message : null;
    }
    state.live = false;
    changed();
    await new Promise((resume) => setTimeout(resume, pause));
  }
}
