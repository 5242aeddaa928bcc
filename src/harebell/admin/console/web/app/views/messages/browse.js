// Message browser: ready messages of a queue in the order of their delivery. Nothing is taken out, marked or counted.
// What is shown is in the address: the queue, where to begin, the selector, and the message that is open.

import { html, useEffect, useMemo, useState } from "../../core/html.js";
import { path, query } from "../../core/api.js";
import { useLoaded } from "../../core/load.js";
import { keyOf, topic, useTopic } from "../../core/live.js";
import { bytes, duration, exchangeName, number, plural, time } from "../../core/format.js";
import { go, link, parameter, place, setParameters } from "../../core/router.js";
import { download } from "../../core/text.js";
import { ask } from "../../parts/operation.js";
import { Field, Fields, entriesOf } from "../../parts/form.js";
import { bytesOf, decoded } from "../../parts/body.js";
import { Failure, Note, Panel, Tag, say } from "../../parts/small.js";
import { DataTable } from "../../parts/table.js";
import { Message, publishTo } from "../messages.js";
import { vhostNames } from "../queues.js";
import { Compare } from "./compare.js";
import { Story, deathsOf } from "./story.js";

const PAGE = 50, WHOLE_PAGE = 10; // messages in one request; fewer with whole bodies
const CUT = 50000, PREVIEW = 120; // bytes of a body, characters in the list

export function Browse({ parts: [vhost, name] }) {
  useTopic("queues");
  if (vhost === undefined || name === undefined) return html`<${Choose} title="Browse messages" about="Look at the messages of a queue. Nothing is taken out or marked." to="browse" />`;
  return html`<header><div><h1>${name}</h1><span class="soft">Messages in <a href=${link("queues", vhost, name)}>queue</a> of <a href=${link("vhosts", vhost)}>${vhost}</a>. To look at them changes nothing.</span></div></header>
    <${Browser} vhost=${vhost} name=${name} />`;
}

/** A form that leads to a view of one queue. */
export function Choose({ title, about, to, choices = null, children }) {
  const queues = useTopic("queues"), vhosts = useTopic("vhosts");
  const [values, set] = useState({ vhost: "", name: "" });
  const vhost = values.vhost || vhostNames()[0] || "/";
  const names = choices || queues.list.filter((row) => row.vhost === vhost && row.messages_ready > 0).sort((a, b) => b.messages_ready - a.messages_ready).slice(0, 200).map((row) => row.name);
  const submit = (event) => {
    event.preventDefault();
    if (values.name) go(link(to, vhost, values.name));
  };
  return html`<header><div><h1>${title}</h1><span class="soft">${about}</span></div></header>
    <${Panel} label="Choose a queue"><form onSubmit=${submit}>${vhosts.complete.value && html`<${Fields} values=${{ ...values, vhost }} set=${set} fields=${[
      { name: "vhost", label: "Virtual host", type: "select", options: vhostNames() }, { name: "name", label: "Queue", required: true, choices: names },
    ]} />`}<button class="main">Show its messages</button></form></${Panel}>${children}`;
}

const first = (text) => { const line = text.trimStart().slice(0, PREVIEW * 2).replace(/\s+/g, " "); return line.length > PREVIEW ? `${line.slice(0, PREVIEW)}…` : line; };

/** A message as the list has it: with its body decoded, and all that a filter looks at as one text. */
function row(message) {
  const about = Array.isArray(message.properties) ? {} : message.properties;
  const { forms, best } = decoded(bytesOf(message), about.content_type);
  const body = forms[best].text || "";
  return { ...message, properties: about, form: best, body, preview: first(body), text: `${message.position} ${message.exchange} ${message.routing_key} ${JSON.stringify(about)} ${body}`.toLowerCase() };
}

const COLUMNS = [
  { id: "position", title: "Position", number: true, value: (it) => it.position, show: (it) => html`<a href=${opened(it)}>${number(it.position)}</a>`, width: "84px", phone: true },
  { id: "key", title: "Key", value: (it) => it.routing_key, width: "minmax(80px, 2fr)", phone: true },
  { id: "exchange", title: "Exchange", value: (it) => exchangeName(it.exchange), width: "minmax(70px, 1fr)" },
  { id: "body", title: "Body", value: (it) => it.preview, show: (it) => html`<code>${it.preview}</code>`, width: "minmax(100px, 5fr)", phone: true },
  { id: "form", title: "Form", value: (it) => it.form, width: "100px", wide: true },
  { id: "size", title: "Size", number: true, value: (it) => it.payload_bytes, show: (it) => bytes(it.payload_bytes), width: "76px" },
  { id: "deliveries", title: "Deliveries", about: "How often a consumer has had it", number: true, value: (it) => it.delivery_count, show: (it) => (it.redelivered ? number(it.delivery_count) : ""), width: "78px", wide: true },
  { id: "died", title: "Died", about: "How often it was dead-lettered", number: true, value: (it) => deathsOf(it).reduce((sum, each) => sum + each.count, 0), show: (it) => (deathsOf(it).length ? number(deathsOf(it).reduce((sum, each) => sum + each.count, 0)) : ""), width: "56px", wide: true },
  { id: "expires", title: "Expires", number: true, value: (it) => it.expires, show: (it) => (it.expires ? `in ${duration(Math.max(0, it.expires - Date.now()) / 1000)}` : ""), width: "96px", wide: true },
];

function opened(it) {
  return link(...place.value.parts, { ...Object.fromEntries(place.value.parameters), at: String(it.position) });
}

/** The messages of a queue, a page of them at a time. */
export function Browser({ vhost, name }) {
  const offset = Number(parameter("offset", "0")) || 0, selector = parameter("filter"), whole = parameter("whole") !== "", at = parameter("at");
  const where = path("queues", vhost, name, "browse") + query({ offset, limit: whole ? WHOLE_PAGE : PAGE, filter: selector, truncate: whole ? "" : CUT });
  const found = useLoaded(where, null, [where]);
  const [typed, type] = useState({ filter: selector });
  const [pair, compare] = useState(null);
  const about = topic("queues").rows.get(keyOf("queues", { vhost, name }));
  const stays = about && about.type === "stream";
  const rows = useMemo(() => (found.value ? found.value.items.map(row) : []), [found.value]);
  const open = rows.find((it) => String(it.position) === at);
  useEffect(() => compare(null), [where]);
  const submit = (event) => {
    event.preventDefault();
    if (typed.filter === selector) found.again();
    else setParameters({ filter: typed.filter, offset: "", at: "" });
  };
  const next = found.value && found.value.next_offset;
  const bar = html`<button disabled=${!offset} onClick=${() => setParameters({ offset: "", at: "" })}>From the first on</button>
    <button disabled=${next === null || next === undefined} onClick=${() => setParameters({ offset: next, at: "" })}>Next</button>
    <label class="check"><input type="checkbox" checked=${whole} onChange=${(event) => setParameters({ whole: event.target.checked ? "1" : "", at: "" })} />whole bodies</label>`;
  const again = () => { setParameters({ at: "" }); found.again(); };
  return html`<form onSubmit=${submit} class="bar"><${Field} field=${{ name: "filter", label: "Selector: only messages for which it holds", hint: "For example: kind = 'big' AND JMSPriority > 3" }} values=${typed} set=${type} />
      <button class="main">Look</button></form>
    <${Failure} error=${found.error} again=${found.again} />
    <${DataTable} id="browse" label="Messages" rows=${rows} columns=${COLUMNS} keyOf=${(it) => String(it.position)} word="message" complete=${!found.loading || rows.length > 0} texts=${(it) => it.text}
      defaultSort="position" href=${opened} bar=${bar} height=${`min(${Math.max(3, rows.length) * 40}px, 46dvh)`} empty=${selector ? "No ready message passes the selector." : offset ? "There is no ready message from here on." : "The queue has no ready messages."}
      actions=${[
        { label: "Compare", run: (chosen) => (chosen.length === 2 ? compare(chosen) : say("Choose two messages to compare.", { kind: "bad" })) },
        { label: "Download", run: (chosen) => save(name, chosen) },
        { label: "Copy…", run: (chosen, done) => send("copy", { vhost, name }, chosen, done) },
        ...(stays ? [] : [
          { label: "Move…", run: (chosen, done) => send("move", { vhost, name }, chosen, () => { done(); again(); }) },
          { label: "Drop…", danger: true, run: (chosen, done) => drop({ vhost, name }, chosen, () => { done(); again(); }) },
        ]),
      ]} />
    ${found.value && !found.loading && html`<p class="soft small">${selector ? `From offset ${number(offset)} on` : `Messages ${number(offset + (rows.length ? 1 : 0))} to ${number(offset + rows.length)}`}${about ? ` of ${number(about.messages_ready)} ready` : ""}, at ${time(Date.now())}.</p>`}
    ${pair && html`<${Compare} one=${pair[0]} other=${pair[1]} close=${() => compare(null)} />`}
    ${open && html`<${Open} ...${{ vhost, name, open, stays, again }} />`}
    ${at && !open && found.value && !found.loading && html`<${Note} role="status">The message at position ${at} is not among these: it may have been delivered, or is on another page.</${Note}>`}`;
}

function Open({ vhost, name, open, stays, again }) {
  const { headers = {}, ...properties } = open.properties;
  const again_ = { headers: entriesOf(headers), properties: entriesOf(Object.fromEntries(Object.entries(properties).filter(([key]) => key !== "delivery_mode"))), persistent: properties.delivery_mode === 2, payload: open.payload, base64: open.payload_encoding === "base64" };
  return html`<${Story} message=${open} vhost=${vhost} queue=${name} />
    <${Message} message=${open} actions=${html`
      ${open.payload.length > 0 && open.payload_bytes === bytesOf(open).length && html`<button onClick=${() => publishTo({ vhost, exchange: open.exchange, key: open.routing_key, message: again_ })}>Publish again…</button>`}
      <a class="button" href=${link("route", { vhost, exchange: open.exchange, key: open.routing_key, headers: JSON.stringify(headers), tested: "1" })}>Test its route</a>
      <button onClick=${() => save(name, [open])}>Download</button>
      <button onClick=${() => send("copy", { vhost, name }, [open])}>Copy…</button>
      ${!stays && html`<button onClick=${() => send("move", { vhost, name }, [open], again)}>Move…</button>
        <button class="danger" onClick=${() => drop({ vhost, name }, [open], again)}>Drop…</button>`}
      <button onClick=${() => setParameters({ at: "" })}>Close</button>`} />
    ${open.delivery_count > 0 && html`<p class="soft">A consumer has had it ${plural(open.delivery_count, "time")} and did not acknowledge it.</p>`}
    ${open.expires && html`<p class="soft">It expires ${time(open.expires)}.</p>`}
    ${open.priority > 0 && html`<p><${Tag}>priority ${open.priority}</${Tag}></p>`}`;
}

/** Offer messages as a file, as the API has them. */
function save(name, chosen) {
  const kept = chosen.map(({ form, body, preview, text, ...message }) => message);
  download(`${name.replace(/[^\w.-]/g, "_")}.json`, JSON.stringify(kept, null, 1));
}

/** Ask for a queue to copy or move messages to. */
export function send(verb, { vhost, name }, chosen, done) {
  const names = topic("queues").list.filter((it) => it.vhost === vhost && it.name !== name && it.type !== "stream").map((it) => it.name).sort().slice(0, 500);
  const title = verb === "move" ? "Move" : "Copy";
  ask({
    title: `${title} ${plural(chosen.length, "message")}`, verb: title, danger: verb === "move",
    about: `${verb === "move" ? "A message leaves this queue when it is safe in the other one" : "The messages stay here too"}. They come to the end of the other queue as they are: address, headers and properties stay.`,
    values: { destination: "" }, fields: [{ name: "destination", label: "To the queue", required: true, choices: names }],
    plan: ({ destination }) => {
      if (!destination) throw new Error("The other queue needs a name.");
      return { requests: chosen.map((it) => ({ method: "POST", path: path("queues", vhost, name, "messages", it.position, verb), body: { destination } })), done: `${plural(chosen.length, "message")} ${verb === "move" ? "moved" : "copied"} to ${destination}` };
    },
    changed: done,
  });
}

export function drop({ vhost, name }, chosen, done) {
  ask({
    title: `Drop ${plural(chosen.length, "message")}`, verb: "Drop", danger: true, about: "They are gone, as if a consumer had acknowledged them. They are not dead-lettered.",
    plan: () => ({ requests: chosen.map((it) => ({ method: "DELETE", path: path("queues", vhost, name, "messages", it.position) })), done: `${plural(chosen.length, "message")} dropped` }),
    changed: done,
  });
}
