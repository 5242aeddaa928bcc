// Bindings: the table on the pages of their ends, bind and unbind.

import { html } from "../core/html.js";
import { path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { topic } from "../core/live.js";
import { exchangeName } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { tableOf } from "../parts/form.js";
import { Failure, value } from "../parts/small.js";
import { DataTable, PlainTable } from "../parts/table.js";

const LONG = 30; // bindings from which on the table has a filter

function End({ vhost, kind, name }) {
  if (kind === "queue") return html`<a href=${link("queues", vhost, name)}>${name}</a>`;
  return html`<a href=${link("exchanges", vhost, name || "amq.default")}>${exchangeName(name)}</a>`;
}

const COLUMNS = {
  source: { id: "source", title: "From", value: (row) => row.source, show: (row) => html`<${End} vhost=${row.vhost} kind="exchange" name=${row.source} />`, width: "minmax(90px, 2fr)", phone: true },
  destination: { id: "destination", title: "To", value: (row) => row.destination, show: (row) => html`<span class="soft">${row.destination_type}</span> <${End} vhost=${row.vhost} kind=${row.destination_type} name=${row.destination} />`, width: "minmax(90px, 2fr)", phone: true },
  key: { id: "key", title: "Key", value: (row) => row.routing_key, show: (row) => html`<code>${row.routing_key}</code>`, width: "minmax(70px, 2fr)", phone: true },
  arguments: { id: "arguments", title: "Arguments", value: (row) => value(row.arguments), show: (row) => (Object.keys(row.arguments).length ? html`<code>${value(row.arguments)}</code>` : ""), width: "minmax(80px, 2fr)", phone: false },
  remove: { id: "remove", title: "", value: () => "", show: (row) => (row.source === "" ? html`<span class="soft">always</span>` : html`<button class="small" onClick=${() => unbind(row)}>Unbind…</button>`), width: "84px", phone: true },
};

/** The bindings behind a path of the API. `ends`: which ends are shown. */
export function BindingTable({ path: where, ends }) {
  const found = useLoaded(where, /^binding\.|^queue\.deleted|^exchange\.deleted/, [where]);
  const columns = [...ends.map((each) => COLUMNS[each]), COLUMNS.key, COLUMNS.arguments, COLUMNS.remove];
  const rows = found.value || [];
  if (found.error) return html`<${Failure} error=${found.error} again=${found.again} />`;
  if (rows.length <= LONG) return html`<${PlainTable} label="Bindings" rows=${rows} columns=${columns} empty=${found.loading ? "Loading…" : "No binding."} />`;
  return html`<${DataTable} id="bindings" label="Bindings" rows=${rows} columns=${columns} word="binding" height="420px"
    keyOf=${(row) => [row.source, row.destination_type, row.destination, row.properties_key].join("\u0000")} />`;
}

function between({ vhost, source, destination_type: type, destination }, ...more) {
  return path("bindings", vhost, "e", source || "amq.default", type === "queue" ? "q" : "e", destination, ...more);
}

function unbind(row) {
  ask({
    title: "Unbind", verb: "Unbind", danger: true,
    about: `Messages with the key '${row.routing_key}' do not go from exchange '${row.source}' to ${row.destination_type} '${row.destination}' any more, unless another binding matches.`,
    plan: () => ({
      requests: [{ method: "DELETE", path: between(row, row.properties_key) }],
      commands: [command("delete binding", { source: row.source, destination_type: row.destination_type, destination: row.destination, properties_key: row.properties_key }, row.vhost)],
      done: "The binding is gone",
    }),
  });
}

/** Ask for a binding to a queue (kind "q") or an exchange ("e"), or with `from` of an exchange to something. */
export function bindTo({ vhost, kind = "q", name = "", from = "" }) {
  const exchanges = topic("exchanges").list.filter((row) => row.vhost === vhost && row.name).map((row) => row.name);
  ask({
    title: from ? `Bind from ${from}` : `Bind ${name}`, verb: "Bind",
    values: { source: from, kind, destination: name, routing_key: "", arguments: [] },
    fields: [
      ...(from ? [
        { name: "kind", label: "To", type: "select", options: [["q", "a queue"], ["e", "an exchange"]] },
        { name: "destination", label: "Its name", required: true },
      ] : [{ name: "source", label: "From the exchange", required: true, choices: exchanges }]),
      { name: "routing_key", label: "Binding key", hint: "For a topic exchange: words between dots; * is one word, # any number of them." },
      { name: "arguments", label: "Arguments", type: "table", known: { "x-match": "text" }, hint: "A headers exchange compares them with the headers of a message." },
    ],
    plan: (values) => {
      if (!values.source || !values.destination) throw new Error("Both ends need a name.");
      const row = { vhost, source: values.source, destination_type: values.kind === "q" ? "queue" : "exchange", destination: values.destination };
      const body = { routing_key: values.routing_key, arguments: tableOf(values.arguments) };
      return {
        requests: [{ method: "POST", path: between(row), body }],
        commands: [command("declare binding", { ...row, vhost: undefined, ...body }, vhost)],
        done: "Bound",
      };
    },
  });
}
