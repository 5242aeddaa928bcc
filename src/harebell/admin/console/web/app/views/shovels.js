// Shovels: what they move, from where to where, and how it goes.

import { html } from "../core/html.js";
import { has, path } from "../core/api.js";
import { keyOf, useTopic } from "../core/live.js";
import { plural } from "../core/format.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Tag } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { vhostNames } from "./queues.js";

const end = (status, side) => status[`${side}_queue`] || `${status[`${side}_exchange`] ?? ""} ${status[`${side}_exchange_key`] ?? ""}`.trim();
const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, width: "minmax(90px, 2fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)" },
  { id: "state", title: "State", value: (row) => row.status.state, show: (row) => html`<${Tag} kind=${{ running: "good", terminated: "bad" }[row.status.state] || "warn"} title=${row.status.reason || ""}>${row.status.state}</${Tag}>`, width: "90px", phone: true },
  { id: "from", title: "From", value: (row) => `${end(row.status, "src")} ${row.status.src_uri || ""}`, width: "minmax(90px, 2fr)", phone: true },
  { id: "to", title: "To", value: (row) => `${end(row.status, "dest")} ${row.status.dest_uri || ""}`, width: "minmax(90px, 2fr)", phone: true },
  { id: "moved", title: "Moved", number: true, value: (row) => row.status.forwarded ?? row.status.moved ?? null, width: "76px" },
  { id: "reason", title: "Reason", value: (row) => row.status.reason || "", width: "minmax(80px, 2fr)", wide: true },
];

export function Shovels() {
  const found = useTopic("shovels");
  return html`<header><div><h1>Shovels</h1></div>${has("policymaker") && html`<button class="main" onClick=${create}>Add a shovel</button>`}</header>
    <${DataTable} id="shovels" label="Shovels" rows=${found.list} columns=${COLUMNS} keyOf=${(row) => keyOf("shovels", row)} word="shovel" complete=${found.complete.value} defaultSort="name" empty="There is no shovel."
      actions=${has("policymaker") ? [{ label: "Start again…", run: (rows, done) => restart(rows, done) }, { label: "Delete…", danger: true, run: (rows, done) => remove(rows, done) }] : []} />`;
}

const where = (row, ...more) => path("shovels", "vhost", row.vhost, row.name, ...more);

function restart(rows, done) {
  ask({ title: `Start ${plural(rows.length, "shovel")} again`, verb: "Start again", about: "It connects anew to both ends.", plan: () => ({ requests: rows.map((row) => ({ method: "DELETE", path: where(row, "restart") })), done: "Started again" }), changed: done });
}

function remove(rows, done) {
  ask({
    title: `Delete ${plural(rows.length, "shovel")}`, verb: "Delete", danger: true, about: "It stops, and its definition is gone. No message is lost.",
    plan: () => ({ requests: rows.map((row) => ({ method: "DELETE", path: where(row) })), commands: rows.map((row) => command("delete parameter", { component: "shovel", name: row.name }, row.vhost)), done: "Deleted" }), changed: done,
  });
}

function create() {
  const vhosts = vhostNames();
  ask({
    title: "Add a shovel", verb: "Add", about: "It moves messages, also between brokers. Each is acknowledged at its source after its destination has confirmed it.",
    values: { vhost: vhosts[0] || "/", name: "", src: "amqp://", srcQueue: "", dest: "amqp://", destKind: "queue", destName: "", destKey: "", after: "never", ack: "on-confirm", prefetch: "1000" },
    fields: [
      { name: "vhost", label: "Virtual host", type: "select", options: vhosts }, { name: "name", label: "Name", required: true },
      { name: "src", label: "Source: address", hint: "amqp:// is this broker." }, { name: "srcQueue", label: "Source: queue", required: true },
      { name: "dest", label: "Destination: address" }, { name: "destKind", label: "Destination: kind", type: "select", options: [["queue", "a queue"], ["exchange", "an exchange"]] },
      { name: "destName", label: "Destination: name", required: true }, { name: "destKey", label: "Destination: routing key", hint: "For an exchange; empty keeps the message's own." },
      { name: "after", label: "Ends", type: "select", options: [["never", "never"], ["queue-length", "with the messages that are there at its start"]] },
      { name: "ack", label: "Acknowledges", type: "select", options: ["on-confirm", "on-publish", "no-ack"] }, { name: "prefetch", label: "Prefetch", type: "number", min: 1 },
    ],
    plan: (values) => {
      if (!values.name || !values.srcQueue || !values.destName) throw new Error("A shovel needs a name, a source and a destination.");
      const to = values.destKind === "queue" ? { "dest-queue": values.destName } : { "dest-exchange": values.destName, ...(values.destKey ? { "dest-exchange-key": values.destKey } : {}) };
      const value = { "src-uri": values.src, "src-queue": values.srcQueue, "dest-uri": values.dest, ...to, "src-delete-after": values.after, "ack-mode": values.ack, "src-prefetch-count": Number(values.prefetch) };
      return { requests: [{ method: "PUT", path: path("parameters", "shovel", values.vhost, values.name), body: { value } }], commands: [command("declare parameter", { component: "shovel", name: values.name, value }, values.vhost)], done: `${values.name} begins` };
    },
  });
}
