// The list of queues, and that of streams: filter, sort, create, purge and delete many.

import { html, useMemo } from "../core/html.js";
import { get, path } from "../core/api.js";
import { keyOf, topic, useTopic } from "../core/live.js";
import { plural, rate } from "../core/format.js";
import { link, place } from "../core/router.js";
import { command } from "../core/text.js";
import { ask, perform } from "../parts/operation.js";
import { tableOf } from "../parts/form.js";
import { Tag, say } from "../parts/small.js";
import { DataTable } from "../parts/table.js";

/** Arguments of queues, with the types of their values. */
export const QUEUE_ARGUMENTS = {
  "x-message-ttl": "number", "x-expires": "number", "x-max-length": "number", "x-max-length-bytes": "number",
  "x-overflow": "text", "x-dead-letter-exchange": "text", "x-dead-letter-routing-key": "text", "x-max-priority": "number",
  "x-single-active-consumer": "yes", "x-delivery-limit": "number", "x-consumer-timeout": "number", "x-max-age": "text",
  "x-stream-max-segment-size-bytes": "number", "x-queue-mode": "text", "x-message-deduplication": "yes",
  "x-dead-letter-strategy": "text", "x-delayed-retry-type": "text", "x-delayed-retry-min": "number", "x-delayed-retry-max": "number",
};
export const TYPES = ["classic", "quorum", "stream"];

/** Short marks of what a queue is: durable, exclusive, limits, ... */
export function Features({ row }) {
  const marks = [
    [!row.durable, "transient", "Does not survive a restart of the broker"],
    [row.auto_delete, "auto-delete", "Is deleted when its last consumer leaves"],
    [row.exclusive, "exclusive", "Belongs to one connection"],
    [row.arguments["x-dead-letter-exchange"] !== undefined, "DLX", `Dead letters go to exchange '${row.arguments["x-dead-letter-exchange"]}'`],
    [row.arguments["x-message-ttl"] !== undefined, "TTL", `Messages live ${row.arguments["x-message-ttl"]} ms`],
    [row.arguments["x-max-length"] !== undefined, "limit", `At most ${row.arguments["x-max-length"]} messages`],
    [row.arguments["x-max-priority"] !== undefined, "priority", `Priorities up to ${row.arguments["x-max-priority"]}`],
    [row.arguments["x-single-active-consumer"], "single active", "One consumer at a time"],
  ];
  return marks.filter(([on]) => on).map(([, text, title]) => html`<${Tag} title=${title}>${text}</${Tag}> `);
}

const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, show: (row) => html`<a href=${link("queues", row.vhost, row.name)} title=${row.name}>${row.name}</a>`, width: "minmax(110px, 4fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(70px, 1fr)" },
  { id: "type", title: "Type", value: (row) => row.type, width: "66px", wide: true },
  { id: "features", title: "Features", value: (row) => `${row.durable ? "durable" : "transient"} ${row.exclusive ? "exclusive" : ""} ${Object.keys(row.arguments).join(" ")}`, show: (row) => html`<${Features} row=${row} />`, width: "minmax(80px, 2fr)", wide: true },
  { id: "policy", title: "Policy", value: (row) => row.policy || "", width: "minmax(60px, 1fr)", wide: true },
  { id: "messages_ready", title: "Ready", number: true, value: (row) => row.messages_ready, width: "78px", phone: true },
  { id: "messages_unacknowledged", title: "Unacked", about: "Delivered, and not acknowledged yet", number: true, value: (row) => row.messages_unacknowledged, width: "70px" },
  { id: "consumers", title: "Consumers", number: true, value: (row) => row.consumers, width: "76px" },
  { id: "publish", title: "In", about: "Messages that come, in a second", number: true, value: (row) => row.publish, show: (row) => rate(row.publish), width: "64px", phone: true },
  { id: "deliver_get", title: "Out", about: "Messages delivered, in a second", number: true, value: (row) => row.deliver_get, show: (row) => rate(row.deliver_get), width: "64px" },
  { id: "ack", title: "Acked", about: "Messages acknowledged, in a second", number: true, value: (row) => row.ack, show: (row) => rate(row.ack), width: "64px" },
  { id: "redeliver", title: "Redelivered", number: true, value: (row) => row.redeliver, show: (row) => rate(row.redeliver), width: "82px", wide: true },
];

export function Queues() {
  const streams = place.value.parts[0] === "streams";
  const queues = useTopic("queues");
  const rows = useMemo(() => queues.list.filter((row) => (row.type === "stream") === streams || !streams), [queues.version.value, streams]);
  const kind = streams ? "stream" : "queue";
  return html`<header><div><h1>${streams ? "Streams" : "Queues"}</h1></div>
      <button class="main" onClick=${() => create(streams ? "stream" : "classic")}>Add a ${kind}</button></header>
    <${DataTable} id="queues" label=${streams ? "Streams" : "Queues"} rows=${rows} columns=${COLUMNS} keyOf=${(row) => keyOf("queues", row)} word=${kind}
      complete=${queues.complete.value} href=${(row) => link("queues", row.vhost, row.name)} defaultSort="name"
      empty=${streams ? "There is no stream in the virtual hosts that you see." : "There is no queue in the virtual hosts that you see."}
      actions=${[
        { label: "Purge…", danger: true, run: (chosen, done) => purge(chosen, done) },
        { label: "Delete…", danger: true, run: (chosen, done) => remove(chosen, done) },
      ]} />`;
}

const where = (row, ...more) => path("queues", row.vhost, row.name, ...more);

/** The exact counts of these queues now. */
async function counted(rows) {
  const found = await Promise.all(rows.slice(0, 200).map((row) => get(`${where(row)}?columns=messages_ready,messages_unacknowledged,consumers`)));
  const sum = (name) => found.reduce((all, each) => all + each[name], 0);
  return { ready: sum("messages_ready"), unacked: sum("messages_unacknowledged"), consumers: sum("consumers"), partly: rows.length > 200 };
}

const KEPT = 3600; // seconds that purged messages can be given back

export function purge(rows, done) {
  ask({
    title: rows.length === 1 ? `Purge ${rows[0].name}` : `Purge ${plural(rows.length, "queue")}`, verb: "Purge", danger: true,
    about: "Ready messages are dropped. Messages that were delivered and are not acknowledged stay with their consumers.",
    values: { keep: rows.length === 1 },
    fields: [{ name: "keep", label: "Keep them for an hour, in a queue of their own: to undo it, move them back", type: "check" }],
    prepare: async () => {
      const { ready, unacked, partly } = await counted(rows);
      return html`<b>${plural(ready, "message")}</b> ${partly ? "in the first 200 of them " : ""}will be dropped; ${plural(unacked, "unacknowledged one")} stay.`;
    },
    plan: ({ keep }) => ({
      requests: rows.map((row) => ({ method: "DELETE", path: where(row, "contents") + (keep ? `?keep=${KEPT}` : "") })),
      commands: keep ? [] : rows.map((row) => command("purge queue", { name: row.name }, row.vhost)),
    }),
    changed: done,
    done: (answers, { keep }) => {
      const kept = keep ? rows.map((row, at) => ({ ...row, ...answers[at], to: row.name })).filter((row) => row.count) : [];
      say(`${plural(rows.length, "queue")} purged`, kept.length ? { seconds: 30, action: { label: "Undo", run: () => giveBack(kept) } } : {});
    },
  });
}

/** Make deleted queues again, with their bindings, and give their messages back. */
async function remake(kept) {
  const { errors } = await perform(kept.map((row) => ({ method: "PUT", path: path("queues", row.vhost, row.to), body: row.definition })));
  const bindings = kept.flatMap((row) => row.bindings.map(({ source, ...body }) => ({ method: "POST", path: path("bindings", row.vhost, "e", source, "q", row.to), body })));
  const { errors: unbound } = errors.length ? { errors: [] } : await perform(bindings);
  const [failed] = [...errors, ...unbound];
  if (failed) say(failed.message, { kind: "bad" });
  else await giveBack(kept);
}

/** Move messages back, and delete the queues that kept them. */
async function giveBack(kept) {
  const at = (row, ...more) => path("queues", row.vhost, row.queue, ...more);
  const { errors } = await perform(kept.map((row) => ({ method: "POST", path: at(row, "move"), body: { destination: row.to } })));
  const { errors: left } = errors.length ? { errors: [] } : await perform(kept.map((row) => ({ method: "DELETE", path: `${at(row)}?if-empty=true` })));
  const failed = [...errors, ...left];
  if (failed.length) say(failed[0].message, { kind: "bad" });
  else say(`${plural(kept.reduce((sum, row) => sum + row.count, 0), "message")} given back to ${kept.length === 1 ? kept[0].to : plural(kept.length, "queue")}`);
}

export function remove(rows, done) {
  ask({
    title: rows.length === 1 ? `Delete ${rows[0].name}` : `Delete ${plural(rows.length, "queue")}`, verb: "Delete", danger: true,
    about: "The queue, its bindings and its messages are gone. Consumers are told that it was cancelled.",
    prepare: async () => {
      const { ready, unacked, consumers, partly } = await counted(rows);
      return html`<b>${plural(ready + unacked, "message")}</b> and ${plural(consumers, "consumer")} are in ${partly ? "the first 200 of them" : rows.length === 1 ? "it" : "them"} now.`;
    },
    values: { keep: rows.length === 1 && rows[0].type !== "stream", empty: false, unused: false },
    fields: [
      { name: "keep", label: "Keep the ready messages for an hour, in a queue of their own, to undo it", type: "check" },
      { name: "empty", label: "Only if it has no messages", type: "check" },
      { name: "unused", label: "Only if it has no consumers", type: "check" },
    ],
    plan: ({ keep, empty, unused }) => {
      const conditions = [keep && `keep=${KEPT}`, empty && "if-empty=true", unused && "if-unused=true"].filter(Boolean).join("&");
      return {
        requests: rows.map((row) => ({ method: "DELETE", path: where(row) + (conditions && `?${conditions}`) })),
        commands: keep ? [] : rows.map((row) => command("delete queue", { name: row.name }, row.vhost)),
      };
    },
    changed: done,
    done: (answers, { keep }) => {
      const kept = keep ? rows.map((row, at) => ({ ...row, ...answers[at], to: row.name })) : [];
      say(`${plural(rows.length, "queue")} deleted`, kept.length ? { seconds: 30, action: { label: "Undo", run: () => remake(kept) } } : {});
    },
  });
}

export function create(type = "classic", vhost = null) {
  const vhosts = vhostNames();
  ask({
    title: "Add a queue", verb: "Add",
    values: { vhost: vhost || vhosts[0] || "/", name: "", type, durable: true, auto_delete: false, arguments: [] },
    fields: [
      { name: "vhost", label: "Virtual host", type: "select", options: vhosts },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", type: "select", options: TYPES },
      { name: "durable", label: "Durable: it survives a restart of the broker", type: "check" },
      { name: "auto_delete", label: "Deleted when its last consumer leaves", type: "check" },
      { name: "arguments", label: "Arguments", type: "table", known: QUEUE_ARGUMENTS },
    ],
    plan: ({ vhost: where, name, type: kind, durable, auto_delete, arguments: entries }) => {
      if (!name) throw new Error("A queue needs a name.");
      const given = { ...tableOf(entries), ...(kind === "classic" ? {} : { "x-queue-type": kind }) };
      const body = { durable, auto_delete, arguments: given };
      return {
        requests: [{ method: "PUT", path: path("queues", where, name), body }],
        commands: [command("declare queue", { name, ...body }, where)],
        done: `Queue ${name} is there`,
      };
    },
    done: (answers, values) => { location.hash = link("queues", values.vhost, values.name); },
  });
}

export function vhostNames() {
  return topic("vhosts").list.map((row) => row.name).sort();
}
