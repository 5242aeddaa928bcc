// Clients: connections, channels (sessions of AMQP 0-10 too) and consumers.

import { html } from "../core/html.js";
import { has, path, user } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { keyOf, useTopic } from "../core/live.js";
import { byteRate, bytes, duration, number, plural, rate, time } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Arguments, Facts, Failure, Note, Panel, Tag, value } from "../parts/small.js";
import { DataTable, PlainTable } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { ObjectHistory } from "./history.js";

const MESSAGE_RATES = [["publish", "published"], ["confirm", "confirmed"], ["deliver_get", "delivered"], ["ack", "acknowledged"], ["redeliver", "redelivered"], ["return_unroutable", "returned"]];

export function clientName(row) {
  const given = row.client_properties || {};
  return given.connection_name || given.product || "";
}

function State({ row }) {
  const kind = { running: "good", blocked: "bad", blocking: "warn", flow: "warn" }[row.state] || "";
  return html`<${Tag} kind=${kind}>${row.state}</${Tag}>`;
}

const CONNECTIONS = [
  { id: "name", title: "Name", value: (row) => row.name, show: (row) => html`<a href=${link("connections", row.name)} title=${row.name}>${clientName(row) && typeof clientName(row) === "string" ? `${clientName(row)} · ` : ""}${row.name}</a>`, width: "minmax(120px, 4fr)", phone: true },
  { id: "user", title: "User", value: (row) => row.user, width: "minmax(60px, 1fr)" },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)", wide: true },
  { id: "protocol", title: "Protocol", value: (row) => row.protocol, width: "92px", wide: true },
  { id: "tls", title: "TLS", value: (row) => (row.tls ? "yes" : "no"), width: "44px", wide: true },
  { id: "state", title: "State", value: (row) => row.state, show: (row) => html`<${State} row=${row} />`, width: "82px", phone: true },
  { id: "channels", title: "Channels", number: true, value: (row) => row.channels, width: "68px" },
  { id: "recv_oct", title: "Bytes in", about: "From the client, in a second", number: true, value: (row) => row.recv_oct, show: (row) => byteRate(row.recv_oct), width: "88px" },
  { id: "send_oct", title: "Bytes out", about: "To the client, in a second", number: true, value: (row) => row.send_oct, show: (row) => byteRate(row.send_oct), width: "88px" },
  { id: "send_pend", title: "Unsent", about: "Bytes that the client has not taken yet", number: true, value: (row) => row.send_pend, show: (row) => (row.send_pend ? bytes(row.send_pend) : ""), width: "76px", wide: true },
  { id: "connected_at", title: "For", about: "Connected for", number: true, value: (row) => -row.connected_at, show: (row) => duration((Date.now() - row.connected_at) / 1000), width: "96px", wide: true },
];

export function Connections() {
  const found = useTopic("connections");
  const texts = (row) => `${row.name} ${row.user} ${row.vhost} ${row.state} ${value(row.client_properties)}`.toLowerCase();
  return html`<header><div><h1>Connections</h1>${!has("monitoring") && html`<span class="soft">Those of your own: the tag monitoring shows all.</span>`}</div></header>
    <${DataTable} id="connections" label="Connections" rows=${found.list} columns=${CONNECTIONS} keyOf=${(row) => keyOf("connections", row)} word="connection" texts=${texts}
      complete=${found.complete.value} href=${(row) => link("connections", row.name)} defaultSort="name" empty="No client is connected."
      actions=${[{ label: "Close…", danger: true, run: close }]} />`;
}

export function close(rows, done) {
  ask({
    title: rows.length === 1 ? "Close the connection" : `Close ${plural(rows.length, "connection")}`, verb: "Close", danger: true,
    about: "Unacknowledged messages return to their queues. Most clients connect again by themselves.",
    values: { reason: "" }, fields: [{ name: "reason", label: "Reason, which the client is told", hint: "It is logged too." }],
    plan: ({ reason }) => ({
      requests: rows.map((row) => ({ method: "DELETE", path: path("connections", row.name), headers: reason ? { "x-reason": encodeURIComponent(reason).replaceAll("%20", " ") } : {} })),
      commands: rows.map((row) => command("close connection", { name: row.name })),
      done: `${plural(rows.length, "connection")} closed`,
    }),
    changed: done,
  });
}

export function Connection({ parts: [name] }) {
  const row = useTopic("connections").rows.get(name);
  const channels = useTopic("channels");
  const where = path("connections", name);
  const found = useLoaded(where, null, [where]);
  const it = found.value;
  if (found.error && found.error.status === 404) {
    return html`<header><div><h1>${name}</h1></div></header><${Note} kind="warn" role="alert"><p>This connection is closed.</p><a href=${link("connections")}>To all connections</a></${Note}>`;
  }
  const own = channels.list.filter((each) => each.connection === name);
  const may = row && (has("administrator") || row.user === user.value.name);
  return html`<header><div><h1>${row && typeof clientName(row) === "string" && clientName(row) ? clientName(row) : name}</h1><span class="soft">${name}</span></div>
      ${may && html`<button class="danger" onClick=${() => close([row])}>Close…</button>`}</header>
    <${Failure} error=${found.error} again=${found.again} />
    ${it && !row && channels.complete.value && html`<${Note} kind="warn" role="alert">This connection is closed. What is shown is what it was.</${Note}>`}
    <${Tabs} tabs=${{
      now: ["Now", () => html`${row && html`<div class="tiles"><div class="tile"><b><${State} row=${row} /></b><span>state</span></div><div class="tile"><b>${byteRate(row.recv_oct) || "0"}</b><span>from the client</span></div>
          <div class="tile"><b>${byteRate(row.send_oct) || "0"}</b><span>to the client</span></div><div class="tile"><b>${row.channels}</b><span>channels</span></div><div class="tile"><b>${bytes(row.send_pend)}</b><span>not taken yet</span></div></div>`}
        <div class="columns"><${Panel} title="What it is">${it && html`<${Facts} rows=${[
          ["User", has("administrator") ? html`<a href=${link("users", it.user)}>${it.user}</a>` : it.user], ["Virtual host", it.vhost], ["Protocol", it.protocol], ["Login", it.auth_mechanism],
          ["Connected", `${time(it.connected_at)}, ${duration((Date.now() - it.connected_at) / 1000)} ago`], ["From", `${it.peer_host}:${it.peer_port}`], ["To", `${it.host}:${it.port}`],
          ["TLS", it.ssl ? `${it.ssl_protocol} ${it.ssl_cipher}` : "no"], ["Heartbeat", it.timeout ? `${it.timeout} s` : "none"], ["Largest frame", bytes(it.frame_max)], ["Most channels", number(it.channel_max)],
          ["Bytes from and to it", `${bytes(it.recv_oct)} and ${bytes(it.send_oct)}`]]} />`}</${Panel}>
        <${Panel} title="What the client says of itself">${it && html`<${Arguments} table=${it.client_properties} />`}</${Panel}></div>
        <${Panel} title=${`Channels (${own.length})`}><${PlainTable} label="Channels" rows=${own} columns=${CHANNELS.filter((each) => !["user", "vhost"].includes(each.id)).map((each) => (each.id === "name" ? { ...each, title: "Number", show: (channel) => html`<a href=${link("channels", channel.name)}>${String(channel.number)}</a>` } : each))} empty="It has no channel open." /></${Panel}>`],
      history: ["Last hour", () => html`<${ObjectHistory} path=${where} octets />`],
    }} />`;
}

const CHANNELS = [
  { id: "name", title: "Channel", value: (row) => row.name, show: (row) => html`<a href=${link("channels", row.name)} title=${row.name}>${row.name}</a>`, width: "minmax(120px, 3fr)", phone: true },
  { id: "user", title: "User", value: (row) => row.user, width: "minmax(60px, 1fr)" },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)", wide: true },
  { id: "mode", title: "Mode", value: (row) => (row.confirm ? "confirm" : row.transactional ? "transaction" : ""), width: "84px", wide: true },
  { id: "consumers", title: "Consumers", number: true, value: (row) => row.consumers, width: "76px" },
  { id: "prefetch_count", title: "Prefetch", number: true, value: (row) => row.prefetch_count, show: (row) => (row.prefetch_count ? number(row.prefetch_count) : row.global_prefetch_count ? `${row.global_prefetch_count} in all` : ""), width: "70px", wide: true },
  { id: "messages_unacknowledged", title: "Unacked", number: true, value: (row) => row.messages_unacknowledged, width: "72px", phone: true },
  { id: "messages_unconfirmed", title: "Unconfirmed", number: true, value: (row) => row.messages_unconfirmed, width: "88px", wide: true },
  { id: "publish", title: "In", number: true, value: (row) => row.publish, show: (row) => rate(row.publish), width: "64px", phone: true },
  { id: "deliver_get", title: "Out", number: true, value: (row) => row.deliver_get, show: (row) => rate(row.deliver_get), width: "64px", phone: true },
  { id: "ack", title: "Acked", number: true, value: (row) => row.ack, show: (row) => rate(row.ack), width: "64px" },
];

export function Channels() {
  const found = useTopic("channels");
  return html`<header><div><h1>Channels</h1>${!has("monitoring") && html`<span class="soft">Those of your own: the tag monitoring shows all.</span>`}</div></header>
    <${DataTable} id="channels" label="Channels" rows=${found.list} columns=${CHANNELS} keyOf=${(row) => keyOf("channels", row)} word="channel" complete=${found.complete.value}
      href=${(row) => link("channels", row.name)} defaultSort="name" empty="No channel is open." />`;
}

export function Channel({ parts: [name] }) {
  const row = useTopic("channels").rows.get(name);
  const consumers = useTopic("consumers");
  const where = path("channels", name);
  const found = useLoaded(where, null, [where]);
  if (found.error && found.error.status === 404) {
    return html`<header><div><h1>${name}</h1></div></header><${Note} kind="warn" role="alert"><p>This channel is closed.</p><a href=${link("channels")}>To all channels</a></${Note}>`;
  }
  const it = found.value;
  return html`<header><div><h1>${name}</h1>${row && html`<span class="soft">of <a href=${link("connections", row.connection)}>${row.connection}</a></span>`}</div></header>
    <${Failure} error=${found.error} again=${found.again} />
    <${Tabs} tabs=${{
      now: ["Now", () => html`${row && html`<div class="tiles">${[["unacknowledged", number(row.messages_unacknowledged)], ["unconfirmed", number(row.messages_unconfirmed)], ["in the transaction", number(row.messages_uncommitted)],
            ...MESSAGE_RATES.map(([id, title]) => [`${title} in a second`, rate(row[id]) || "0"])].map(([title, text]) => html`<div class="tile"><b>${text}</b><span>${title}</span></div>`)}</div>`}
        <${Panel} title="What it is">${it && html`<${Facts} rows=${[["User", it.user], ["Virtual host", it.vhost], ["Number", String(it.number)], ["State", it.state], ["Confirms publications", it.confirm], ["In a transaction", it.transactional],
          ["Prefetch of a consumer", it.prefetch_count || "none"], ["Prefetch of all together", it.global_prefetch_count || "none"], ["Acknowledgements in the transaction", it.acks_uncommitted || null], ["Idle since", it.idle_since && time(Date.parse(it.idle_since))]]} />`}</${Panel}>
        <${Panel} title="Consumers"><${ConsumerTable} rows=${consumers.list.filter((each) => each.channel === name)} /></${Panel}>`],
      history: ["Last hour", () => html`<${ObjectHistory} path=${where} rates=${MESSAGE_RATES} />`],
    }} />`;
}

// -- consumers

const CONSUMERS = [
  { id: "consumer_tag", title: "Tag", value: (row) => row.consumer_tag, width: "minmax(90px, 2fr)", phone: true },
  { id: "queue", title: "Queue", value: (row) => row.queue, show: (row) => html`<a href=${link("queues", row.vhost, row.queue)}>${row.queue}</a>`, width: "minmax(90px, 2fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)", wide: true },
  { id: "user", title: "User", value: (row) => row.user, width: "minmax(60px, 1fr)" },
  { id: "channel", title: "Channel", value: (row) => row.channel, show: (row) => (has("monitoring") || row.user === user.value.name ? html`<a href=${link("channels", row.channel)}>${row.channel}</a>` : row.channel), width: "minmax(100px, 2fr)", wide: true },
  { id: "mode", title: "Acks", value: (row) => (row.ack_required ? "yes" : "no"), width: "48px", wide: true },
  { id: "state", title: "State", value: stateOf, show: (row) => html`<${Tag} kind=${{ full: "warn", waits: "" }[stateOf(row)] ?? "good"} title=${STATES[stateOf(row)]}>${stateOf(row)}</${Tag}>`, width: "66px", phone: true },
  { id: "prefetch_count", title: "Prefetch", number: true, value: (row) => row.prefetch_count, show: (row) => (row.prefetch_count ? number(row.prefetch_count) : "none"), width: "70px" },
  { id: "do", title: "", value: () => "", show: (row) => html`<button class="small" disabled=${!row.ack_required || !(has("administrator") || row.user === user.value.name)} onClick=${() => prefetch(row)}>Prefetch…</button>`, width: "92px" },
];
const STATES = { full: "It has as many unacknowledged deliveries as its prefetch allows", takes: "It takes messages", waits: "Another consumer of this queue is the active one" };

function stateOf(row) {
  return !row.active ? "waits" : row.room === 0 ? "full" : "takes";
}

function prefetch(row) {
  ask({
    title: `Prefetch of ${row.consumer_tag}`, verb: "Change", about: "It holds at once, until the consumer ends or sets another one.",
    values: { prefetch_count: String(row.prefetch_count) }, fields: [{ name: "prefetch_count", label: "Unacknowledged deliveries at a time; 0 for no limit", type: "number", min: 0, step: 1, required: true }],
    plan: ({ prefetch_count: count }) => ({
      requests: [{ method: "PUT", path: path("consumers", row.vhost, row.channel, row.consumer_tag, "prefetch"), body: { prefetch_count: Number(count) } }],
      done: `The prefetch of ${row.consumer_tag} is ${count}`,
    }),
  });
}

export function ConsumerTable({ rows, queue = true }) {
  return html`<${PlainTable} label="Consumers" rows=${rows} columns=${CONSUMERS.filter((each) => each.id !== "vhost" && (queue || each.id !== "queue")).map((each) => ({ ...each, phone: Boolean(each.phone) }))} empty="No consumer." />`;
}

export function Consumers() {
  const found = useTopic("consumers");
  return html`<header><div><h1>Consumers</h1></div></header>
    <${DataTable} id="consumers" label="Consumers" rows=${found.list} columns=${CONSUMERS} keyOf=${(row) => keyOf("consumers", row)} word="consumer" complete=${found.complete.value} defaultSort="queue"
      href=${(row) => link("queues", row.vhost, row.queue)} empty="Nothing consumes." />`;
}

