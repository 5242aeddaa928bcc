// Virtual hosts: the list, and one with its limits and permissions.

import { html } from "../core/html.js";
import { has, path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { keyOf, useTopic } from "../core/live.js";
import { byteRate, number, plural, rate } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Facts, Failure, Note, Panel } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { Limits } from "./limits.js";
import { PermissionTable, grant } from "./permissions.js";
import { TYPES } from "./queues.js";

const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, show: (row) => html`<a href=${link("vhosts", row.name)}>${row.name}</a>`, width: "minmax(90px, 2fr)", phone: true },
  { id: "description", title: "Description", value: (row) => row.description, width: "minmax(90px, 3fr)", wide: true },
  { id: "queues", title: "Queues", number: true, value: (row) => row.queues, width: "66px", phone: true },
  { id: "connections", title: "Connections", number: true, value: (row) => row.connections, width: "84px" },
  { id: "messages_ready", title: "Ready", number: true, value: (row) => row.messages_ready, width: "80px", phone: true },
  { id: "messages_unacknowledged", title: "Unacked", number: true, value: (row) => row.messages_unacknowledged, width: "72px" },
  { id: "publish", title: "In", number: true, value: (row) => row.publish, show: (row) => rate(row.publish), width: "64px" },
  { id: "deliver_get", title: "Out", number: true, value: (row) => row.deliver_get, show: (row) => rate(row.deliver_get), width: "64px" },
  { id: "recv_oct", title: "Bytes in", number: true, value: (row) => row.recv_oct, show: (row) => byteRate(row.recv_oct), width: "90px", wide: true },
  { id: "send_oct", title: "Bytes out", number: true, value: (row) => row.send_oct, show: (row) => byteRate(row.send_oct), width: "90px", wide: true },
];

export function Vhosts() {
  const found = useTopic("vhosts");
  return html`<header><div><h1>Virtual hosts</h1></div>${has("administrator") && html`<button class="main" onClick=${() => change()}>Add a virtual host</button>`}</header>
    <${DataTable} id="vhosts" label="Virtual hosts" rows=${found.list} columns=${COLUMNS} keyOf=${(row) => keyOf("vhosts", row)} word="virtual host" complete=${found.complete.value} defaultSort="name" href=${(row) => link("vhosts", row.name)} />`;
}

function change(row = null) {
  ask({
    title: row ? `Change ${row.name}` : "Add a virtual host", verb: row ? "Change" : "Add", about: row ? "" : "You get all permissions in it.",
    values: row ? { name: row.name, description: row.description, tags: row.tags.join(", "), default_queue_type: row.default_queue_type, tracing: row.tracing } : { name: "", description: "", tags: "", default_queue_type: "classic", tracing: false },
    fields: [
      ...(row ? [] : [{ name: "name", label: "Name", required: true }]),
      { name: "description", label: "Description" }, { name: "tags", label: "Tags", hint: "With commas between them." },
      { name: "default_queue_type", label: "Type of queues that are declared without one", type: "select", options: TYPES },
      { name: "tracing", label: "Tracing: a copy of each message goes to the exchange amq.rabbitmq.trace", type: "check" },
    ],
    plan: ({ name, ...body }) => {
      if (!name) throw new Error("A virtual host needs a name.");
      return { requests: [{ method: "PUT", path: path("vhosts", name), body }], commands: [command("declare vhost", { name, ...body })], done: row ? "Changed" : `${name} is there` };
    },
  });
}

function remove(row) {
  ask({
    title: `Delete ${row.name}`, verb: "Delete it", danger: true, about: "Everything in it is gone: queues with their messages, exchanges, bindings, policies, permissions. Its connections are closed.",
    prepare: async () => html`<b>${plural(row.queues, "queue")}, ${plural(row.messages_ready + row.messages_unacknowledged, "message")} and ${plural(row.connections, "connection")}</b> are in it.`,
    values: { name: "" }, fields: [{ name: "name", label: "Write its name to confirm" }],
    plan: ({ name }) => {
      if (name !== row.name) throw new Error("Write the name of the virtual host.");
      return { requests: [{ method: "DELETE", path: path("vhosts", row.name) }], commands: [command("delete vhost", { name: row.name })], done: `${row.name} is deleted` };
    },
    done: () => { location.hash = link("vhosts"); },
  });
}

export function Vhost({ parts: [name] }) {
  const found = useTopic("vhosts"), row = found.rows.get(name);
  const permissions = useLoaded(has("administrator") ? path("vhosts", name, "permissions") : null, /permission|^user\.deleted/, [name]);
  if (found.complete.value && !row) return html`<header><div><h1>${name}</h1></div></header><${Note} kind="warn" role="alert"><p>There is no virtual host '${name}', or you may not see it.</p><a href=${link("vhosts")}>To all virtual hosts</a></${Note}>`;
  return row && html`<header><div><h1>${name}</h1><span class="soft">virtual host</span></div>
      ${has("administrator") && html`<div class="gap"><button onClick=${() => change(row)}>Change…</button><button class="danger" onClick=${() => remove(row)}>Delete…</button></div>`}</header>
    <div class="tiles">${[["queues", number(row.queues), "queues"], ["exchanges", number(row.exchanges), "exchanges"], ["connections", number(row.connections), "connections"]].map(([to, text, title]) => html`<a class="tile" href=${link(to, { q: `vhost:=${name}` })}><b>${text}</b><span>${title}</span></a>`)}
      ${[["messages ready", number(row.messages_ready)], ["unacknowledged", number(row.messages_unacknowledged)], ["published in a second", rate(row.publish) || "0"], ["delivered in a second", rate(row.deliver_get) || "0"]].map(([title, text]) => html`<div class="tile"><b>${text}</b><span>${title}</span></div>`)}</div>
    <div class="columns"><${Panel} title="What it is"><${Facts} rows=${[["Description", row.description], ["Tags", row.tags.join(", ")], ["Default queue type", row.default_queue_type], ["Tracing", row.tracing]]} /></${Panel}>
      <${Limits} kind="vhost" name=${name} names=${{ "max-connections": "Connections", "max-queues": "Queues" }} /></div>
    ${has("administrator") && html`<${Panel} title="Permissions" actions=${html`<button onClick=${() => grant({ vhost: name })}>Grant…</button>`}><${Failure} error=${permissions.error} /><${PermissionTable} rows=${permissions.value || []} by="user" /></${Panel}>`}`;
}
