// Dead letters: which queues collect them, and of one queue its letters by reason, queue, and age, with their stories; send
// them back with a preview. To look at them changes nothing.

import { html, useEffect, useMemo, useState } from "../../core/html.js";
import { get, path, query, request } from "../../core/api.js";
import { useLoaded } from "../../core/load.js";
import { keyOf, useTopic } from "../../core/live.js";
import { duration, number, plural, time } from "../../core/format.js";
import { link, parameter, setParameters } from "../../core/router.js";
import { ask } from "../../parts/operation.js";
import { Failure, Note, Panel, say } from "../../parts/small.js";
import { PlainTable } from "../../parts/table.js";
import { Choose } from "./browse.js";
import { REASONS, Story, deathsOf } from "./story.js";

const PAGE = 500, MOST = 5000; // letters of one request, and looked at in all
const CUT = 200; // bytes of a body
const SHOWN = 50; // letters in the list of a group
const AGES = [[60, "in the last minute"], [3600, "in the last hour"], [86400, "in the last day"], [Infinity, "before"]];

export function DeadLetters({ parts: [vhost, name] }) {
  if (vhost === undefined || name === undefined) return html`<${Choose} title="Dead letters" about="Messages that were rejected, expired, or did not fit." to="dead-letters"><${Collectors} /></${Choose}>`;
  return html`<${Letters} vhost=${vhost} name=${name} key=${`${vhost}\u0000${name}`} />`;
}

/** Where a queue's dead letters go: {exchange, key}, by its arguments; policies are looked up where there are any. */
async function targets(queues) {
  const policies = new Map((await get("/api/policies")).map((each) => [`${each.vhost}\u0000${each.name}`, each.definition]));
  const found = new Map(); // exchanges of dead letters, with the queues that use them
  for (const row of queues) {
    const rule = (row.policy && policies.get(`${row.vhost}\u0000${row.policy}`)) || {};
    const exchange = row.arguments["x-dead-letter-exchange"] ?? rule["dead-letter-exchange"];
    if (typeof exchange !== "string") continue;
    const key = row.arguments["x-dead-letter-routing-key"] ?? rule["dead-letter-routing-key"] ?? null;
    const id = [row.vhost, exchange, exchange === "" ? key ?? row.name : ""].join("\u0000");
    if (!found.has(id)) found.set(id, { vhost: row.vhost, exchange, key: exchange === "" ? key ?? row.name : null, from: [] });
    found.get(id).from.push(row.name);
  }
  return [...found.values()];
}

const MOST_EXCHANGES = 50; // exchanges of dead letters whose bindings are loaded

/** The queues that collect dead letters: [{vhost, name, from}]. */
async function collectors(queues, exchanges) {
  const all = await targets(queues), found = new Map();
  const note = (vhost, name, from) => {
    const id = keyOf("queues", { vhost, name });
    if (!found.has(id)) found.set(id, { vhost, name, from: new Set() });
    for (const each of from) found.get(id).from.add(each);
  };
  for (const each of all.filter((it) => it.exchange === "")) note(each.vhost, each.key, each.from);
  await Promise.all(all.filter((it) => it.exchange !== "" && exchanges.has(keyOf("exchanges", { vhost: it.vhost, name: it.exchange }))).slice(0, MOST_EXCHANGES).map(async ({ vhost, exchange, from }) => {
    const bindings = await get(path("exchanges", vhost, exchange, "bindings", "source")).catch(() => []);
    for (const each of bindings) if (each.destination_type === "queue") note(vhost, each.destination, from);
  }));
  return [...found.values()].map((each) => ({ ...each, from: [...each.from].sort() }));
}

function Collectors() {
  const live = useTopic("queues");
  const exchanges = useTopic("exchanges"), complete = live.complete.value && exchanges.complete.value;
  const found = useLoaded(complete ? () => collectors(live.list, exchanges.rows) : null, /^(queue|binding|policy|exchange)\./, [complete]);
  const rows = (found.value || []).map((each) => ({ ...each, row: live.rows.get(keyOf("queues", each)) })).filter((each) => each.row)
    .sort((one, other) => other.row.messages_ready - one.row.messages_ready || (one.name < other.name ? -1 : 1));
  return html`<${Failure} error=${found.error} again=${found.again} />
    <${Panel} title="Queues that collect them"><${PlainTable} label="Queues that collect dead letters" rows=${rows} columns=${COLLECTORS} empty=${found.loading || !complete ? "Looking…" : "No queue has a dead-letter exchange that leads to a queue."} /></${Panel}>`;
}

const COLLECTORS = [
  { id: "name", title: "Queue", value: (it) => it.name, show: (it) => html`<a href=${link("dead-letters", it.vhost, it.name)}>${it.name}</a>` },
  { id: "vhost", title: "Virtual host", value: (it) => it.vhost, phone: false },
  { id: "ready", title: "Messages", number: true, value: (it) => it.row.messages_ready },
  { id: "consumers", title: "Consumers", number: true, value: (it) => it.row.consumers, phone: false },
  { id: "from", title: "From", value: (it) => it.from.join(", "), show: (it) => `${it.from.slice(0, 5).join(", ")}${it.from.length > 5 ? ` and ${it.from.length - 5} more` : ""}` },
];

/** Load the letters of a queue, a part of it at a time. `each` is called with what has come so far. */
async function load(vhost, name, each, stopped) {
  const letters = [];
  let offset = 0;
  while (offset !== null && letters.length < MOST && !stopped()) {
    const answer = await get(path("queues", vhost, name, "browse") + query({ offset, limit: PAGE, truncate: CUT }));
    letters.push(...answer.items);
    offset = answer.next_offset;
    each(letters, offset === null);
  }
}

/** Groups of letters by a key: [{name, letters}], the largest first. */
function grouped(letters, by) {
  const found = new Map();
  for (const letter of letters) {
    const name = by(letter);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(letter);
  }
  return [...found].map(([group, all]) => ({ name: group, letters: all })).sort((one, other) => other.letters.length - one.letters.length);
}

function Letters({ vhost, name }) {
  const row = useTopic("queues").rows.get(keyOf("queues", { vhost, name }));
  const [state, set] = useState({ letters: [], complete: false, error: null });
  const [turn, again] = useState(0);
  useEffect(() => {
    let stopped = false;
    set({ letters: [], complete: false, error: null });
    load(vhost, name, (letters, complete) => !stopped && set({ letters: letters.slice(), complete, error: null }), () => stopped)
      .then(() => !stopped && set((last) => ({ ...last, done: true })), (error) => !stopped && set((last) => ({ ...last, done: true, error })));
    return () => { stopped = true; };
  }, [vhost, name, turn]);
  const now = Date.now() / 1000;
  const dead = useMemo(() => state.letters.map((letter) => ({ letter, last: deathsOf(letter)[0] })).filter((each) => each.last), [state.letters]);
  const reason = parameter("reason"), from = parameter("from"), at = parameter("at");
  const chosen = dead.filter(({ last }) => (!reason || last.reason === reason) && (!from || last.queue === from));
  const open = at && chosen.find(({ letter }) => String(letter.position) === at);
  const others = state.letters.length - dead.length;
  const ages = grouped(chosen, ({ last }) => AGES.find(([most]) => now - last.time < most)[1]);
  const choice = (title, parameter_, groups, text) => html`<${Panel} title=${title}><${PlainTable} label=${title} rows=${groups} empty="none" columns=${[
    { title: "", show: (it) => (parameter_ ? html`<button class="link" aria-pressed=${parameter(parameter_) === it.name} onClick=${() => setParameters({ [parameter_]: parameter(parameter_) === it.name ? "" : it.name, at: "" })}>${text(it.name)}</button>` : it.name) },
    { title: "Letters", number: true, value: (it) => it.letters.length },
    { title: "Oldest", show: (it) => age(Math.min(...it.letters.map(({ last }) => last.time)), now), phone: false },
    { title: "Latest", show: (it) => age(Math.max(...it.letters.map(({ last }) => last.time)), now) },
  ]} /></${Panel}>`;
  return html`<header><div><h1>${name}</h1><span class="soft">Dead letters in <a href=${link("queues", vhost, name)}>queue</a> of <a href=${link("vhosts", vhost)}>${vhost}</a>${row ? `, ${plural(row.messages_ready, "message")} ready` : ""}.</span></div>
      <div class="gap"><button onClick=${() => again(turn + 1)}>Look again</button><a class="button" href=${link("browse", vhost, name)}>Browse all</a>
        <button class="main" disabled=${!chosen.length} onClick=${() => redrive({ vhost, name, reason, from }, () => again(turn + 1))}>Send back…</button></div></header>
    <${Failure} error=${state.error} again=${() => again(turn + 1)} />
    <p role="status">${!state.done && !state.letters.length ? "Looking…" : `${plural(dead.length, "dead letter")}${state.complete ? "" : `, among the first ${number(state.letters.length)} messages`}${others ? `, and ${plural(others, "message")} that did not die` : ""}.`}
      ${(reason || from) && html` ${plural(chosen.length, "letter")} chosen. <button class="link" onClick=${() => setParameters({ reason: "", from: "", at: "" })}>Choose all</button>`}</p>
    ${dead.length > 0 && html`<div class="columns">${choice("By reason", "reason", grouped(from ? dead.filter(({ last }) => last.queue === from) : dead, ({ last }) => last.reason), (it) => (REASONS[it] ? `${it}: ${REASONS[it]}` : it))}
        ${choice("By the queue in which they died", "from", grouped(reason ? dead.filter(({ last }) => last.reason === reason) : dead, ({ last }) => last.queue), (it) => it)}</div>
      ${choice("By the time of their last death", null, ages)}
      <${Panel} title=${chosen.length > SHOWN ? `The first ${SHOWN} of them` : "The letters"}><${PlainTable} label="Dead letters" rows=${chosen.slice(0, SHOWN)} columns=${LETTERS} /></${Panel}>
      ${open && html`<${Story} message=${open.letter} vhost=${vhost} queue=${name} />`}`}`;
}

const age = (at, now) => (at ? `${duration(Math.max(0, now - at))} ago` : "");

const LETTERS = [
  { title: "Position", number: true, show: ({ letter }) => html`<button class="link" onClick=${() => setParameters({ at: String(letter.position) })} title="Tell what happened to it">${number(letter.position)}</button>` },
  { title: "Died", value: ({ last }) => time(last.time * 1000) },
  { title: "Why", show: ({ letter, last }) => { const count = deathsOf(letter).reduce((sum, each) => sum + each.count, 0); return `${last.reason}${count > 1 ? `, died ${plural(count, "time")}` : ""}`; } },
  { title: "In", show: ({ last }) => last.queue },
  { title: "Key", value: ({ last }) => last.keys[0] || "", phone: false },
  { title: "Body", show: ({ letter }) => html`<code>${letter.payload_encoding === "base64" ? "(bytes)" : letter.payload.slice(0, 80)}</code>`, phone: false },
];

const lines = (table) => Object.entries(table).map(([name, count]) => html`<li>${plural(count, "letter")}: <b>${name}</b></li>`);

/** Ask for letters to be sent back; what would go where is said first. */
function redrive({ vhost, name, reason, from }, done) {
  const where = path("queues", vhost, name, "redrive");
  const body = (limit, dry) => ({ limit: Number(limit), dry_run: dry, ...(reason ? { reason } : {}), ...(from ? { from } : {}) });
  const limit = 10000;
  ask({
    title: "Send dead letters back", verb: "Send them back", danger: true,
    about: `Letters ${reason ? `with the reason ${reason} ` : ""}${from ? `from ${from} ` : ""}go to the end of the queues in which they died last. They keep their headers.`,
    prepare: async () => {
      const plan = await request("POST", where, body(limit, true));
      return html`<b>${plural(plan.count, "letter")} would go back</b>, at most, if they still fit:<ul>${lines(plan.queues)}</ul>${Object.keys(plan.left).length > 0 && html`Others stay:<ul>${lines(plan.left)}</ul>`}`;
    },
    values: { limit: String(limit) }, fields: [{ name: "limit", label: "At most so many", type: "number", min: 1, max: limit }],
    plan: ({ limit: most }) => {
      if (!(Number(most) >= 1)) throw new Error("Send back 1 letter or more.");
      return { requests: [{ method: "POST", path: where, body: body(most, false) }], commands: [] };
    },
    done: ([answer]) => {
      const full = answer.left["queue is full"];
      say(`${plural(answer.count, "letter")} sent back${full ? `; ${plural(full, "letter")} did not fit` : ""}`, { kind: full ? "bad" : "good" });
    },
    changed: done,
  });
}
