// Permissions and topic permissions: tables on the pages of users and virtual hosts, grant and take away.

import { html } from "../core/html.js";
import { path } from "../core/api.js";
import { exchangeName } from "../core/format.js";
import { topic } from "../core/live.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { PlainTable } from "../parts/table.js";

const PATTERN = "A pattern for names, such as ^orders; .* for all, empty for none.";
const pattern = (value) => (value === "" ? html`<span class="soft">none</span>` : html`<code>${value}</code>`);

/** `by`: which end is shown, "user" or "vhost". */
export function PermissionTable({ rows, by }) {
  return html`<${PlainTable} label="Permissions" rows=${rows} empty="No permission: it cannot be used." columns=${[
    { title: by === "user" ? "User" : "Virtual host", show: (row) => html`<a href=${link(by === "user" ? "users" : "vhosts", row[by])}>${row[by]}</a>` },
    { title: "Configure", show: (row) => pattern(row.configure) }, { title: "Write", show: (row) => pattern(row.write) }, { title: "Read", show: (row) => pattern(row.read) },
    { title: "", show: (row) => html`<div class="gap"><button class="small" onClick=${() => grant(row, true)}>Change…</button><button class="small danger" onClick=${() => clear(row)}>Clear…</button></div>` },
  ]} />`;
}

export function TopicPermissionTable({ rows }) {
  return html`<${PlainTable} label="Topic permissions" rows=${rows} empty="None: routing keys are not checked." columns=${[
    { title: "Virtual host", value: (row) => row.vhost }, { title: "Exchange", show: (row) => exchangeName(row.exchange) }, { title: "Write", show: (row) => pattern(row.write) }, { title: "Read", show: (row) => pattern(row.read) },
    { title: "", show: (row) => html`<button class="small danger" onClick=${() => clearTopic(row)}>Clear…</button>` },
  ]} />`;
}

export function grant({ user = "", vhost = "", configure = ".*", write = ".*", read = ".*" }, fixed = false) {
  const vhosts = topic("vhosts").list.map((row) => row.name).sort();
  ask({
    title: fixed ? `Permissions of ${user} in ${vhost}` : "Grant permissions", verb: "Set", values: { user, vhost: vhost || vhosts[0] || "/", configure, write, read },
    fields: [
      ...(fixed ? [] : [{ name: "user", label: "User", required: true }, { name: "vhost", label: "Virtual host", type: "select", options: vhosts }]),
      { name: "configure", label: "Configure: declare and delete", hint: PATTERN }, { name: "write", label: "Write: publish, and bind to", hint: PATTERN }, { name: "read", label: "Read: consume, and bind from", hint: PATTERN },
    ],
    plan: ({ user: who, vhost: where, ...body }) => {
      if (!who) throw new Error("Whose?");
      return { requests: [{ method: "PUT", path: path("permissions", where, who), body }], commands: [command("declare permission", { vhost: where, user: who, ...body })], done: "The permission is set" };
    },
  });
}

function clear(row) {
  ask({
    title: `Clear the permissions of ${row.user} in ${row.vhost}`, verb: "Clear", danger: true, about: "The user cannot log in to this virtual host any more, and what its connections do next is refused.",
    plan: () => ({ requests: [{ method: "DELETE", path: path("permissions", row.vhost, row.user) }], commands: [command("delete permission", { vhost: row.vhost, user: row.user })], done: "The permission is gone" }),
  });
}

export function grantTopic({ user, vhost = "/", exchange = "amq.topic", write = ".*", read = ".*" }) {
  const vhosts = topic("vhosts").list.map((row) => row.name).sort();
  ask({
    title: `Topic permission of ${user}`, verb: "Set", values: { vhost, exchange, write, read },
    fields: [
      { name: "vhost", label: "Virtual host", type: "select", options: vhosts }, { name: "exchange", label: "Topic exchange", required: true },
      { name: "write", label: "Write: routing keys", hint: "{username} and {vhost} stand for those of the connection." }, { name: "read", label: "Read: binding keys" },
    ],
    plan: ({ vhost: where, ...body }) => ({ requests: [{ method: "PUT", path: path("topic-permissions", where, user), body }], done: "The topic permission is set" }),
  });
}

function clearTopic(row) {
  ask({
    title: `Clear the topic permission of ${row.user} at ${exchangeName(row.exchange)}`, verb: "Clear", danger: true, about: "Routing keys are not checked there any more.",
    plan: () => ({ requests: [{ method: "DELETE", path: path("topic-permissions", row.vhost, row.user, row.exchange || "amq.default") }], done: "The topic permission is gone" }),
  });
}
