// The audit log: who changed what, from where, and what was refused, also before this page was opened.

import { html } from "../core/html.js";
import { path } from "../core/api.js";
import { time } from "../core/format.js";
import { useLoaded } from "../core/load.js";
import { link } from "../core/router.js";
import { Failure, Tag, value } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { Refusals } from "./refusals.js";

const LATEST = 500;
const WHERE = `${path("audit")}?page=1&page_size=${LATEST}`;
const ACTS = /^(queue|exchange|binding|vhost|user|permission|topic|parameter|policy)\./;

function Name({ row }) {
  if (row.outcome === "done" && !row.act.includes("deleted")) {
    if (row.kind === "queue") return html`<a href=${link("queues", row.vhost, row.name)}>${row.name}</a>`;
    if (row.kind === "exchange") return html`<a href=${link("exchanges", row.vhost, row.name)}>${row.name}</a>`;
  }
  return row.name;
}

const more = (row) => row.reason || Object.entries(row.details).map(([name, it]) => `${name} ${value(it)}`).join(", ");
const COLUMNS = [
  { id: "at", title: "At", value: (row) => row.number, show: (row) => html`<span title=${new Date(row.at).toLocaleString("en-GB")}>${time(row.at)}</span>`, width: "78px", phone: true },
  { id: "user", title: "By", value: (row) => row.user || (row.protocol ? "" : "the broker"), width: "minmax(60px, 1fr)", phone: true },
  { id: "from", title: "From", value: (row) => `${row.peer} ${row.protocol}`.trim(), width: "minmax(80px, 1fr)", wide: true },
  { id: "act", title: "What", value: (row) => `${row.kind} ${row.act}`, show: (row) => html`<${Tag} kind=${row.outcome === "refused" ? "bad" : /deleted|purged|cleared|closed/.test(row.act) ? "warn" : ""}>${row.kind} ${row.act}</${Tag}>`, width: "minmax(110px, 1fr)", phone: true },
  { id: "outcome", title: "Outcome", value: (row) => row.outcome, width: "72px" },
  { id: "name", title: "Of", value: (row) => row.name, show: (row) => html`<${Name} row=${row} />`, width: "minmax(90px, 2fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)" },
  { id: "more", title: "Reason or details", value: more, show: (row) => html`<span title=${more(row)}>${row.reason ? row.reason : html`<code>${more(row)}</code>`}</span>`, width: "minmax(100px, 3fr)", wide: true },
];

export function Audit() {
  const found = useLoaded(WHERE, ACTS, []);
  const page = found.value || { items: [], total_count: 0 };
  const all = page.total_count > page.items.length ? `The latest ${page.items.length} of ${page.total_count}.` : "Since the broker's start, as far as they are kept.";
  return html`<header><div><h1>Audit log</h1><span class="soft">${all}</span></div><button onClick=${found.again}>Load again</button></header>
    <${Failure} error=${found.error} again=${found.again} />
    <${Refusals} />
    <${DataTable} id="audit" label="Audit log" rows=${page.items} columns=${COLUMNS} keyOf=${(row) => String(row.number)} word="record" complete=${!found.loading} defaultSort="-at" empty="Nothing was changed or refused." />`;
}
