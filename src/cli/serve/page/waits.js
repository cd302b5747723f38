// Who waits for whom: clients and locks as a graph, from the waiters on the left to the holders on the right.
import { client, el, ownerOf, setText, span, svg, visible } from "./dom.js";
import { holderText, linkTo } from "./locks.js";
import { now, state } from "./store.js";

const mostLocks = 30;
const mostWaiters = 6;  // of each lock; the rest is one node

/** Nodes by id, and edges {from, to, kind}; of a part of the locks if there are many. */
function graphOf(locks, cycles) {
  const nodes = new Map();
  const edges = [];
  const inCycle = new Set(cycles.flatMap((cycle) => cycle.entries));
  const clientNode = (party) => {
    const id = `client ${party.session}`;
    if (!nodes.has(id)) nodes.set(id, { id, kind: "client", title: client(party), more: visible(party.note || ownerOf(party)) });
    return id;
  };
  const closing = new Set(locks.filter((lock) => lock.queue.some((one) => inCycle.has(one.grant_id))).map((lock) => lock.key));
  for (const lock of locks) {
    const id = `lock ${lock.key}`;
    nodes.set(id, { id, kind: "lock", title: visible(lock.name), more: `${lock.waiting} waiting, ${lock.waiting_since ? span(now() - lock.waiting_since) : ""}`, link: linkTo(lock) });
    const first = lock.queue.slice(0, mostWaiters);
    // A waiter of a cycle is shown wherever it stands.
    for (const one of lock.queue.slice(mostWaiters)) if (inCycle.has(one.grant_id)) first.push(one);
    for (const one of first) edges.push({ from: clientNode(one), to: id, kind: inCycle.has(one.grant_id) ? "cycle" : "waits" });
    const left = lock.waiting - first.length;
    if (left > 0) {
      nodes.set(`${id} rest`, { id: `${id} rest`, kind: "client", title: `${left} more`, more: "" });
      edges.push({ from: `${id} rest`, to: id, kind: "waits" });
    }
    for (const one of lock.holders.slice(0, mostWaiters)) {
      const holder = clientNode(one);
      edges.push({ from: id, to: holder, kind: closing.has(lock.key) ? "closing" : "holds" });
    }
  }
  // What leads from a lock of a cycle to a client that waits in the cycle closes it.
  const waitsInCycle = new Set(edges.filter((edge) => edge.kind === "cycle").map((edge) => edge.from));
  for (const edge of edges) if (edge.kind === "closing") edge.kind = waitsInCycle.has(edge.to) ? "cycle" : "holds";
  return { nodes, edges };
}

/** Gives each node a column: right of all that lead to it, but for edges that close a cycle. */
function arrange({ nodes, edges }) {
  const next = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const edge of edges) next.get(edge.from).push(edge.to);
  const order = [];
  const mark = new Map();  // 1: on the path, 2: done
  for (const start of nodes.keys()) {
    if (mark.has(start)) continue;
    const path = [[start, 0]];
    mark.set(start, 1);
    while (path.length > 0) {
      const top = path.at(-1);
      const to = next.get(top[0])[top[1]++];
      if (to === undefined) {
        mark.set(top[0], 2);
        order.push(top[0]);
        path.pop();
      } else if (!mark.has(to)) {
        mark.set(to, 1);
        path.push([to, 0]);
      }
    }
  }
  order.reverse();
  const rank = new Map(order.map((id, index) => [id, index]));
  const columns = [];
  for (const id of order) nodes.get(id).column = 0;
  for (const id of order) {
    for (const to of next.get(id)) {
      if (rank.get(to) <= rank.get(id)) continue;
      nodes.get(to).column = Math.max(nodes.get(to).column, nodes.get(id).column + 1);
    }
  }
  for (const id of order) (columns[nodes.get(id).column] ??= []).push(nodes.get(id));
  const before = new Map([...nodes.keys()].map((id) => [id, []]));
  for (const edge of edges) before.get(edge.to).push(edge.from);
  columns.forEach((column) => {
    column.forEach((node, row) => { node.row = row; });
    // By the mean row of what leads here: fewer edges cross.
    const mean = (node) => {
      const rows = before.get(node.id).map((id) => nodes.get(id)).filter((one) => one.column < node.column).map((one) => one.row);
      return rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : node.row;
    };
    const means = new Map(column.map((node) => [node, mean(node)]));
    column.sort((a, b) => means.get(a) - means.get(b));
    column.forEach((node, row) => { node.row = row; });
  });
  return columns;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function draw(locks, cycles) {
  const graph = graphOf(locks, cycles);
  const columns = arrange(graph);
  const wide = 210, high = 44, gapX = 90, gapY = 14, edge = 34;
  const rows = Math.max(...columns.map((column) => column.length));
  const width = 2 * edge + columns.length * wide + (columns.length - 1) * gapX;
  const height = 2 * edge + rows * (high + gapY);
  const x = (node) => edge + node.column * (wide + gapX);
  const y = (node) => edge + (node.row + (rows - columns[node.column].length) / 2) * (high + gapY);
  const colours = { waits: "--quiet", holds: "--held", cycle: "--bad" };
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Who waits for whom" },
    svg("defs", {}, Object.keys(colours).map((kind) => svg("marker", { id: `end-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
      svg("path", { class: `head-${kind}`, d: "M0 0 8 4 0 8Z", fill: `var(${colours[kind]})` })))));
  for (const { from, to, kind } of graph.edges) {
    const a = graph.nodes.get(from), b = graph.nodes.get(to);
    const y1 = y(a) + high / 2, y2 = y(b) + high / 2;
    const forward = b.column > a.column;
    const x1 = x(a) + wide, x2 = x(b);
    const path = forward ? `M${x1} ${y1}C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}`
      // Back to the left, below both.
      : `M${x1} ${y1}C${x1 + 32} ${y1} ${x1 + 32} ${height - 8} ${x1 - 20} ${height - 8}L${x2 + 20} ${height - 8}C${x2 - 32} ${height - 8} ${x2 - 32} ${y2} ${x2} ${y2}`;
    picture.append(svg("path", { class: `edge ${kind}`, d: path, "marker-end": `url(#end-${kind})` }));
  }
  for (const node of graph.nodes.values()) {
    const box = svg("g", { class: `node ${node.kind}`, transform: `translate(${x(node)} ${y(node)})` },
      svg("rect", { width: wide, height: high, rx: node.kind === "lock" ? 4 : 20 }),
      svg("text", { x: 14, y: 18 }, short(node.title, 27)),
      svg("text", { x: 14, y: 34, class: "quiet" }, short(node.more, 29)),
      svg("title", {}, `${node.title}${node.more ? `\n${node.more}` : ""}`));
    picture.append(node.link ? svg("a", { href: node.link }, box) : box);
  }
  return picture;
}

export function waitsView() {
  const summary = el("p", { class: "quiet" });
  const cycles = el("div");
  const picture = el("div", { class: "picture" });
  const legend = el("div", { class: "legend" }, el("span", {}, el("i"), "waits for"), el("span", {}, el("i", { class: "holds" }), "is held by"), el("span", {}, el("i", { class: "cycle" }), "part of a deadlock cycle"));
  const element = el("div", {}, summary, cycles, picture, legend);
  let drawn = "";

  function update() {
    const waited = [...state.locks.values()].filter((lock) => lock.waiting > 0);
    const inCycle = new Set(state.cycles.flatMap((cycle) => cycle.entries));
    const isInCycle = (lock) => lock.queue.some((one) => inCycle.has(one.grant_id));
    waited.sort((a, b) => Number(isInCycle(b)) - Number(isInCycle(a)) || a.waiting_since - b.waiting_since || (a.key < b.key ? -1 : 1));
    const shown = waited.slice(0, mostLocks);
    setText(summary, waited.length === 0 ? "Nothing waits." : waited.length > mostLocks ? `${waited.length} locks are waited for; the ${mostLocks} with the longest wait are shown.` : `${waited.length} ${waited.length === 1 ? "lock is" : "locks are"} waited for.`);
    picture.hidden = legend.hidden = waited.length === 0;
    // Once a change, and not once a second: a reader follows a line with the eyes.
    const now_ = JSON.stringify([shown.map((lock) => [lock.key, lock.waiting, holderText(lock), lock.queue.map((one) => one.grant_id)]), state.cycles]);
    if (now_ === drawn) return;
    drawn = now_;
    cycles.replaceChildren(...state.cycles.map((cycle) => el("p", { class: "alarm" }, el("b", {}, "Deadlock cycle: "), visible(cycle.text))));
    if (waited.length > 0) picture.replaceChildren(draw(shown, state.cycles));
  }
  return { element, update };
}
