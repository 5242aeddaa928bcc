// Policies and operator policies: the list, and a form that shows what a policy would change while it is typed.

import { html, useMemo } from "../core/html.js";
import { has, path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { useTopic } from "../core/live.js";
import { plural } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { entriesOf, tableOf } from "../parts/form.js";
import { Failure, Tag, value } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { vhostNames } from "./queues.js";

const KEYS = {
  "message-ttl": "number", expires: "number", "max-length": "number", "max-length-bytes": "number", overflow: "text", "dead-letter-exchange": "text", "dead-letter-routing-key": "text",
  "delivery-limit": "number", "consumer-timeout": "number", "alternate-exchange": "text", "max-age": "text", "stream-max-segment-size-bytes": "number", "dead-letter-strategy": "text",
  "delayed-retry-type": "text", "delayed-retry-min": "number", "delayed-retry-max": "number",
};
const APPLY = ["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"];

const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, width: "minmax(90px, 2fr)", phone: true },
  { id: "kind", title: "Kind", value: (row) => (row.operator ? "operator" : "user"), show: (row) => html`<${Tag} kind=${row.operator ? "on" : ""}>${row.operator ? "operator" : "user"}</${Tag}>`, width: "76px" },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(60px, 1fr)" },
  { id: "pattern", title: "Pattern", value: (row) => row.pattern, show: (row) => html`<code>${row.pattern}</code>`, width: "minmax(80px, 2fr)", phone: true },
  { id: "apply", title: "Applies to", value: (row) => row["apply-to"], width: "minmax(70px, 1fr)", wide: true },
  { id: "definition", title: "Definition", value: (row) => value(row.definition), show: (row) => html`<code title=${value(row.definition)}>${value(row.definition)}</code>`, width: "minmax(90px, 3fr)", wide: true },
  { id: "priority", title: "Priority", number: true, value: (row) => row.priority, width: "64px" },
  { id: "used", title: "Objects", about: "Queues and exchanges that have it now", number: true, value: (row) => row.used, show: (row) => html`<a href=${link("queues", { q: `policy:=${row.name}` })}>${row.used}</a>`, width: "66px", phone: true },
  { id: "do", title: "", value: () => "", show: (row) => row.may && html`<button class="small" onClick=${() => change(row)}>Change…</button>`, width: "84px", phone: true },
];

export function Policies() {
  const user = useLoaded("/api/policies", /policy|^vhost\./), operator = useLoaded("/api/operator-policies", /policy|^vhost\./);
  const queues = useTopic("queues"), exchanges = useTopic("exchanges");
  const used = useMemo(() => {
    const counts = new Map(), add = (kind, row, name) => name && counts.set(`${kind} ${row.vhost} ${name}`, (counts.get(`${kind} ${row.vhost} ${name}`) || 0) + 1);
    for (const row of [...queues.list, ...exchanges.list]) {
      add("user", row, row.policy);
      add("operator", row, row.operator_policy);
    }
    return counts;
  }, [queues.version.value, exchanges.version.value]);
  const marked = (rows, isOperator) => (rows || []).map((row) => ({ ...row, operator: isOperator, used: used.get(`${isOperator ? "operator" : "user"} ${row.vhost} ${row.name}`) || 0, may: has(isOperator ? "administrator" : "policymaker") }));
  return html`<header><div><h1>Policies</h1></div><div class="gap">${has("policymaker") && html`<button class="main" onClick=${() => change(null)}>Add a policy</button>`}
      ${has("administrator") && html`<button onClick=${() => change(null, true)}>Add an operator policy</button>`}</div></header>
    <${Failure} error=${user.error || operator.error} again=${() => { user.again(); operator.again(); }} />
    <${DataTable} id="policies" label="Policies" rows=${[...marked(user.value, false), ...marked(operator.value, true)]} columns=${COLUMNS} keyOf=${(row) => `${row.operator} ${row.vhost} ${row.name}`} word="policy" complete=${!user.loading} defaultSort="name"
      empty="There is no policy." actions=${has("policymaker") ? [{ label: "Delete…", danger: true, run: remove }] : []} />`;
}

const endpoint = (operator) => (operator ? "operator-policies" : "policies");

function remove(rows, done) {
  ask({
    title: rows.length === 1 ? `Delete ${rows[0].name}` : `Delete ${plural(rows.length, "policy", "policies")}`, verb: "Delete", danger: true, about: "What they set is taken back at once; another policy that matches may come in force.",
    plan: () => ({ requests: rows.map((row) => ({ method: "DELETE", path: path(endpoint(row.operator), row.vhost, row.name) })), commands: rows.map((row) => command(`delete ${row.operator ? "operator_policy" : "policy"}`, { name: row.name }, row.vhost)), done: "Deleted" }),
    changed: done,
  });
}

function change(row, isOperator = row ? row.operator : false) {
  const vhosts = vhostNames();
  ask({
    title: row ? `Change ${row.name}` : isOperator ? "Add an operator policy" : "Add a policy", verb: row ? "Change" : "Add",
    about: isOperator ? "An operator policy is merged into the user's policy, and makes limits only narrower." : "Of several policies that match, the one with the highest priority applies.",
    values: row ? { vhost: row.vhost, name: row.name, pattern: row.pattern, apply: row["apply-to"], priority: String(row.priority), definition: entriesOf(row.definition) } : { vhost: vhosts[0] || "/", name: "", pattern: "", apply: "queues", priority: "0", definition: [] },
    fields: [
      ...(row ? [] : [{ name: "vhost", label: "Virtual host", type: "select", options: vhosts }, { name: "name", label: "Name", required: true }]),
      { name: "pattern", label: "Pattern for names", required: true, hint: "A regular expression: ^orders\\. matches names that begin with orders." },
      { name: "apply", label: "Applies to", type: "select", options: APPLY }, { name: "priority", label: "Priority", type: "number", step: 1 },
      { name: "definition", label: "Definition", type: "table", known: KEYS },
    ],
    plan: ({ vhost, name, pattern, apply, priority, definition }) => {
      if (!name || !pattern) throw new Error("A policy needs a name and a pattern.");
      const body = { pattern, "apply-to": apply, priority: Number(priority), definition: tableOf(definition) };
      return { requests: [{ method: "PUT", path: path(endpoint(isOperator), vhost, name), body }], commands: [command(`declare ${isOperator ? "operator_policy" : "policy"}`, { name, ...body }, vhost)], done: `${name} is in force` };
    },
  });
}

