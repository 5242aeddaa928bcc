// The topology of a virtual host as nodes and edges, and where each node stands. Pure: no page, no library.
//
// A node: {id, kind: "exchange", "queue" or "missing", name, row}. An edge: {id, source, target, kind, keys}: "binding",
// "alternate" (what no binding matches), or "dead" (dead letters). Bindings between the same two ends are one edge.

const COLUMN = 340, LINE = 58; // distances
const ROUNDS = 40; // the deepest chain that has a column of its own

export const exchangeId = (name) => `e\u0000${name}`;
export const queueId = (name) => `q\u0000${name}`;

/** `deadLetters` gives {exchange, key} of a queue's row, or null. */
export function build({ exchanges, queues, bindings, deadLetters }) {
  const nodes = new Map(), edges = new Map();
  for (const row of exchanges) nodes.set(exchangeId(row.name), { id: exchangeId(row.name), kind: "exchange", name: row.name, row });
  for (const row of queues) nodes.set(queueId(row.name), { id: queueId(row.name), kind: "queue", name: row.name, row });
  const connect = (kind, source, target, key) => {
    if (!nodes.has(source)) return;
    if (!nodes.has(target)) nodes.set(target, { id: target, kind: "missing", name: target.slice(2), row: null });
    const id = `${kind}\u0000${source}\u0000${target}`;
    if (!edges.has(id)) edges.set(id, { id, kind, source, target, keys: [] });
    if (key !== null) edges.get(id).keys.push(key);
  };
  for (const each of bindings) {
    if (each.source === "") continue; // every queue has that one
    connect("binding", exchangeId(each.source), each.destination_type === "queue" ? queueId(each.destination) : exchangeId(each.destination), each.routing_key);
  }
  for (const row of exchanges) if (row.alternate) connect("alternate", exchangeId(row.name), exchangeId(row.alternate), null);
  for (const row of queues) {
    const to = deadLetters(row);
    if (to) connect("dead", queueId(row.name), to.exchange === "" ? queueId(to.key ?? row.name) : exchangeId(to.exchange), to.key);
  }
  const used = new Set([...edges.values()].flatMap((each) => [each.source, each.target]));
  for (const [id, node] of nodes) if (node.kind === "exchange" && !used.has(id)) nodes.delete(id); // nothing is bound to it
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}

/** The part of a topology that a search is for: what has the text in its name, with all that it leads to or comes from. */
export function around({ nodes, edges }, text, most) {
  const found = new Set(nodes.filter((each) => each.name.toLowerCase().includes(text)).map((each) => each.id));
  const matched = new Set(found);
  for (let grew = true; grew && found.size < most;) {
    grew = false;
    for (const { source, target } of edges) {
      if (found.size >= most) break;
      if (found.has(source) !== found.has(target)) {
        found.add(source);
        found.add(target);
        grew = true;
      }
    }
  }
  const kept = nodes.filter((each) => found.has(each.id)).slice(0, most), ids = new Set(kept.map((each) => each.id));
  return { nodes: kept, edges: edges.filter((each) => ids.has(each.source) && ids.has(each.target)), matched };
}

/** The edges that lead to the right: not those to where they come from, which dead letters often take. */
function ahead(edges) {
  const found = edges.filter((each) => each.kind === "binding" && each.source !== each.target), next = new Map();
  const add = ({ source, target }) => { next.set(source, [...(next.get(source) || []), target]); };
  const reaches = (from, to) => {
    const seen = new Set([from]);
    for (const id of seen) {
      if (id === to) return true;
      for (const each of next.get(id) || []) seen.add(each);
    }
    return false;
  };
  found.forEach(add);
  for (const each of edges) {
    if (each.kind === "binding" || reaches(each.target, each.source)) continue;
    add(each);
    found.push(each);
  }
  return found;
}

/** Where each node stands: columns from left to right along the bindings, what leads to the same place close together. */
export function places({ nodes, edges }) {
  const depth = new Map(nodes.map((each) => [each.id, 0])), forward = ahead(edges);
  for (let round = 0, moved = true; moved && round < Math.min(ROUNDS, nodes.length); round++) {
    moved = false;
    for (const { source, target } of forward) {
      if (depth.get(target) <= depth.get(source)) {
        depth.set(target, depth.get(source) + 1);
        moved = true;
      }
    }
  }
  const columns = new Map();
  for (const node of [...nodes].sort((one, other) => (one.name < other.name ? -1 : 1))) {
    const at = Math.min(depth.get(node.id), ROUNDS);
    if (!columns.has(at)) columns.set(at, []);
    columns.get(at).push(node.id);
  }
  const found = new Map(), sources = new Map();
  for (const { source, target } of edges) sources.set(target, [...(sources.get(target) || []), source]);
  const numbers = [...columns.keys()].sort((one, other) => one - other);
  numbers.forEach((number, x) => {
    const middle = (id) => {
      const known = (sources.get(id) || []).filter((each) => found.has(each)).map((each) => found.get(each).y);
      return known.length ? known.reduce((sum, y) => sum + y, 0) / known.length : 0;
    };
    const column = columns.get(number).map((id, at) => [middle(id), at, id]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
    column.forEach(([, , id], at) => found.set(id, { x: x * COLUMN, y: (at - (column.length - 1) / 2) * LINE }));
  });
  return found;
}

/** Messages in a second on an edge: {rate, sure}; not sure where other edges lead to the same queue too. */
export function rateOf(edge, { nodes, edges }) {
  if (edge.kind !== "binding") return null;
  const target = nodes.get(edge.target), source = nodes.get(edge.source);
  if (!target || !target.row || !source || !source.row) return null;
  const rate = target.kind === "queue" ? target.row.publish : target.row.publish_in;
  return { rate: Math.min(rate || 0, target.kind === "queue" ? Infinity : source.row.publish_in || 0), sure: edges.filter((each) => each.target === edge.target).length === 1 };
}
