// Exchanges: the list, and one exchange with its bindings both ways.

import { html } from "../core/html.js";
import { path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { keyOf, useTopic } from "../core/live.js";
import { exchangeName, number, plural, rate } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { tableOf } from "../parts/form.js";
import { Arguments, Facts, Failure, Note, Panel, Tag } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { BindingTable, bindTo } from "./bindings.js";
import { ObjectHistory } from "./history.js";
import { publishTo } from "./messages.js";
import { vhostNames } from "./queues.js";

const named = (row) => row.name || "amq.default";
const isOwn = (row) => row.name === "" || row.name.startsWith("amq.");
const RATES = [["publish_in", "in"], ["publish_out", "out, counted by queue"]];

function Marks({ row }) {
  const marks = [
    [!row.durable, "transient", "Does not survive a restart of the broker"], [row.auto_delete, "auto-delete", "Is deleted with its last binding"],
    [row.internal, "internal", "Clients cannot publish to it"], [row.alternate, "alternate", `What it routes nowhere goes to '${row.alternate}'`],
  ];
  return marks.filter(([on]) => on).map(([, text, title]) => html`<${Tag} title=${title}>${text}</${Tag}> `);
}

const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, show: (row) => html`<a href=${link("exchanges", row.vhost, named(row))}>${exchangeName(row.name)}</a>`, width: "minmax(110px, 3fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.vhost, width: "minmax(70px, 1fr)" },
  { id: "type", title: "Type", value: (row) => row.type, width: "minmax(64px, 1fr)", phone: true },
  { id: "features", title: "Features", value: (row) => `${row.internal ? "internal" : ""} ${Object.keys(row.arguments).join(" ")}`, show: (row) => html`<${Marks} row=${row} />`, width: "minmax(80px, 2fr)", wide: true },
  { id: "policy", title: "Policy", value: (row) => row.policy || "", width: "minmax(60px, 1fr)", wide: true },
  { id: "publish_in", title: "In", about: "Messages published to it, in a second", number: true, value: (row) => row.publish_in, show: (row) => rate(row.publish_in), width: "70px", phone: true },
  { id: "publish_out", title: "Out", about: "Messages that it routed to queues, in a second, each queue counted", number: true, value: (row) => row.publish_out, show: (row) => rate(row.publish_out), width: "70px", phone: true },
  { id: "messages_delayed", title: "Delayed", number: true, value: (row) => row.messages_delayed || null, width: "70px", wide: true },
];

export function Exchanges() {
  const exchanges = useTopic("exchanges");
  return html`<header><div><h1>Exchanges</h1></div><button class="main" onClick=${() => create()}>Add an exchange</button></header>
    <${DataTable} id="exchanges" label="Exchanges" rows=${exchanges.list} columns=${COLUMNS} keyOf=${(row) => keyOf("exchanges", row)} word="exchange"
      complete=${exchanges.complete.value} href=${(row) => link("exchanges", row.vhost, named(row))} defaultSort="name"
      actions=${[{ label: "Delete…", danger: true, run: remove }]} />`;
}

function remove(rows, done) {
  const own = rows.filter((row) => !isOwn(row));
  ask({
    title: own.length === 1 ? `Delete ${own[0].name}` : `Delete ${plural(own.length, "exchange")}`, verb: "Delete", danger: true,
    about: "Its bindings go with it. Publishing to it is then an error that closes the publisher's channel."
      + (own.length < rows.length ? " Exchanges that every virtual host has are left out." : ""),
    values: { unused: false }, fields: [{ name: "unused", label: "Only if nothing is bound to it", type: "check" }],
    plan: ({ unused }) => {
      if (!own.length) throw new Error("These exchanges are in every virtual host, and cannot be deleted.");
      return {
        requests: own.map((row) => ({ method: "DELETE", path: path("exchanges", row.vhost, row.name) + (unused ? "?if-unused=true" : "") })),
        commands: own.map((row) => command("delete exchange", { name: row.name }, row.vhost)),
        done: `${plural(own.length, "exchange")} deleted`,
      };
    },
    changed: done,
  });
}

async function create() {
  const vhosts = vhostNames();
  ask({
    title: "Add an exchange", verb: "Add",
    values: { vhost: vhosts[0] || "/", name: "", type: "topic", durable: true, auto_delete: false, internal: false, arguments: [] },
    fields: [
      { name: "vhost", label: "Virtual host", type: "select", options: vhosts },
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", choices: ["direct", "topic", "fanout", "headers", "x-consistent-hash", "x-delayed-message", "x-random", "x-recent-history", "x-modulus-hash"], required: true },
      { name: "durable", label: "Durable: it survives a restart of the broker", type: "check" },
      { name: "auto_delete", label: "Deleted with its last binding", type: "check" },
      { name: "internal", label: "Internal: clients cannot publish to it", type: "check" },
      { name: "arguments", label: "Arguments", type: "table", known: { "alternate-exchange": "text", "x-delayed-type": "text", "hash-header": "text", "hash-property": "text", "x-recent-history-length": "number" } },
    ],
    plan: ({ vhost, name, arguments: entries, ...more }) => {
      if (!name) throw new Error("An exchange needs a name.");
      const body = { ...more, arguments: tableOf(entries) };
      return { requests: [{ method: "PUT", path: path("exchanges", vhost, name), body }], commands: [command("declare exchange", { name, ...body }, vhost)], done: `Exchange ${name} is there` };
    },
    done: (answers, values) => { location.hash = link("exchanges", values.vhost, values.name); },
  });
}

export function Exchange({ parts: [vhost, shown = ""] }) {
  const name = shown === "amq.default" ? "" : shown;
  const row = useTopic("exchanges").rows.get(keyOf("exchanges", { vhost, name }));
  const where = path("exchanges", vhost, shown);
  const found = useLoaded(where, /^(exchange|policy)\./, [where]);
  if (found.error && found.error.status === 404) {
    return html`<header><div><h1>${exchangeName(name)}</h1></div></header><${Note} kind="warn" role="alert"><p>There is no exchange '${name}' in virtual host '${vhost}', or you may not see it.</p><a href=${link("exchanges")}>To all exchanges</a></${Note}>`;
  }
  const it = found.value;
  return html`<header><div><h1>${exchangeName(name)}</h1><span class="soft">${it ? it.type : "exchange"} in <a href=${link("vhosts", vhost)}>${vhost}</a> ${row && html`<${Marks} row=${row} />`}</span></div>
      <div class="gap">${it && !it.internal && html`<button onClick=${() => publishTo({ vhost, exchange: name })}>Publish…</button>`}
        ${name && html`<button onClick=${() => bindTo({ vhost, from: name })}>Bind…</button>`}
        <a class="button" href=${link("route", { vhost, exchange: name })}>Test a route</a>
        ${it && !isOwn(it) && html`<button class="danger" onClick=${() => remove([{ vhost, name }])}>Delete…</button>`}</div></header>
    <${Failure} error=${found.error} again=${found.again} />
    <${Tabs} tabs=${{
      now: ["Now", () => html`<div class="tiles"><div class="tile"><b>${rate(row && row.publish_in) || 0}/s</b><span>in</span></div><div class="tile"><b>${rate(row && row.publish_out) || 0}/s</b><span>out, counted by queue</span></div>
          ${row && row.messages_delayed > 0 && html`<div class="tile"><b>${number(row.messages_delayed)}</b><span>delayed</span></div>`}</div>
        <${Panel} title="What it is">${it && html`<${Facts} rows=${[["Type", it.type], ["Durable", it.durable ? "yes" : "no: it is gone after a restart"], ["Deleted when unused", it.auto_delete], ["Internal", it.internal],
          ["Alternate exchange", it.alternate_exchange && html`<a href=${link("exchanges", vhost, it.alternate_exchange)}>${it.alternate_exchange}</a>`], ["Policy", it.policy]]} />
          <h3>Arguments</h3><${Arguments} table=${it.arguments} />`}</${Panel}>
        <${Panel} title="Bindings from it" actions=${name && html`<button onClick=${() => bindTo({ vhost, from: name })}>Bind…</button>`}>${name ? html`<${BindingTable} path=${path("exchanges", vhost, shown, "bindings", "source")} ends=${["destination"]} />`
          : html`<p class="soft">The default exchange has a binding to every queue, by the queue's name.</p>`}</${Panel}>
        ${name && html`<${Panel} title="Bindings to it"><${BindingTable} path=${path("exchanges", vhost, shown, "bindings", "destination")} ends=${["source"]} /></${Panel}>`}`],
      history: ["Last hour", () => html`<${ObjectHistory} path=${where} rates=${RATES} />`],
    }} />`;
}
