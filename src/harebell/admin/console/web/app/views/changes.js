// Changes: what happened on the broker since this page was opened, as it happens, with who did it.

import { html } from "../core/html.js";
import { changes } from "../core/live.js";
import { time } from "../core/format.js";
import { link } from "../core/router.js";
import { Tag, value } from "../parts/small.js";
import { DataTable } from "../parts/table.js";

const SHORT = new Set(["event", "at", "user_who_performed_action", "vhost", "name"]);
let numbers = new WeakMap(), last = 0;

function numberOf(change) {
  if (!numbers.has(change)) numbers.set(change, ++last);
  return numbers.get(change);
}

function What({ row }) {
  const name = row.name ?? row.queue ?? row.consumer_tag ?? row.source_name ?? "";
  const [kind, act] = row.event.split(".");
  const exists = act !== "deleted" && act !== "closed";
  if (exists && kind === "queue") return html`<a href=${link("queues", row.vhost, row.name)}>${name}</a>`;
  if (exists && kind === "exchange") return html`<a href=${link("exchanges", row.vhost, row.name || "amq.default")}>${name}</a>`;
  if (exists && kind === "connection") return html`<a href=${link("connections", row.name)}>${name}</a>`;
  if (kind === "binding") return `${row.source_name} → ${row.destination_name} by '${row.routing_key}'`;
  return String(name);
}

const COLUMNS = [
  { id: "at", title: "At", value: numberOf, show: (row) => time(row.at), width: "78px", phone: true },
  { id: "event", title: "What", value: (row) => row.event, show: (row) => html`<${Tag} kind=${/deleted|closed|cleared|failure/.test(row.event) ? "warn" : ""}>${row.event}</${Tag}>`, width: "minmax(110px, 1fr)", phone: true },
  { id: "name", title: "Of", value: (row) => String(row.name ?? row.queue ?? row.source_name ?? ""), show: (row) => html`<${What} row=${row} />`, width: "minmax(100px, 2fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost ?? "", width: "minmax(60px, 1fr)" },
  { id: "user", title: "By", value: (row) => row.user_who_performed_action ?? row.user ?? "", width: "minmax(60px, 1fr)" },
  { id: "details", title: "Details", value: details, show: (row) => html`<span title=${details(row)}><code>${details(row)}</code></span>`, width: "minmax(100px, 3fr)", wide: true },
];

function details(row) {
  return Object.entries(row).filter(([name, it]) => !SHORT.has(name) && it !== "" && value(it) !== "[]").map(([name, it]) => `${name} ${value(it)}`).join(", ");
}

export function Changes() {
  return html`<header><div><h1>Changes</h1><span class="soft">Since this page was opened; the latest 500.</span></div></header>
    <${DataTable} id="changes" label="Changes" rows=${changes.value} columns=${COLUMNS} keyOf=${(row) => String(numberOf(row))} word="change" defaultSort="-at" empty="Nothing has changed yet." />`;
}
