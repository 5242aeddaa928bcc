// Users: the list, and one with its permissions, topic permissions and limits.

import { html, useState } from "../core/html.js";
import { path, user as me } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { plural } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Facts, Failure, Note, Panel, Tag } from "../parts/small.js";
import { DataTable } from "../parts/table.js";
import { Limits } from "./limits.js";
import { PermissionTable, TopicPermissionTable, grant, grantTopic } from "./permissions.js";
import { Refusals } from "./refusals.js";

const TAGS = ["administrator", "monitoring", "policymaker", "management", "impersonator"];
const LONG = 24; // characters of a password that is made here
const LETTERS = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";

const COLUMNS = [
  { id: "name", title: "Name", value: (row) => row.name, show: (row) => html`<a href=${link("users", row.name)}>${row.name}</a>`, width: "minmax(100px, 2fr)", phone: true },
  { id: "tags", title: "Tags", value: (row) => row.tags.join(" "), show: (row) => row.tags.map((tag) => html`<${Tag} kind=${tag === "administrator" ? "on" : ""}>${tag}</${Tag}> `), width: "minmax(100px, 2fr)", phone: true },
  { id: "password", title: "Password", value: (row) => (row.password_hash ? "yes" : "none: it cannot log in with one"), width: "minmax(80px, 1fr)", wide: true },
  { id: "vhosts", title: "Virtual hosts", value: (row) => row.vhosts.join(" "), show: (row) => (row.vhosts.length ? row.vhosts.join(", ") : html`<span class="warn">none</span>`), width: "minmax(90px, 2fr)" },
  { id: "limits", title: "Limits", value: (row) => Object.entries(row.limits).map(([name, value]) => `${name} ${value}`).join(", "), width: "minmax(70px, 1fr)", wide: true },
];

export function Users() {
  const users = useLoaded("/api/users", /^user\.(created|deleted|tags|password|limits)/), permissions = useLoaded("/api/permissions", /permission|^user\.deleted/);
  const rows = (users.value || []).map((row) => ({ ...row, vhosts: (permissions.value || []).filter((each) => each.user === row.name).map((each) => each.vhost) }));
  return html`<header><div><h1>Users</h1></div><button class="main" onClick=${() => change()}>Add a user</button></header><${Failure} error=${users.error} again=${users.again} />
    <${DataTable} id="users" label="Users" rows=${rows} columns=${COLUMNS} keyOf=${(row) => row.name} word="user" complete=${!users.loading} defaultSort="name" href=${(row) => link("users", row.name)}
      actions=${[{ label: "Delete…", danger: true, run: remove }]} />`;
}

function Maker({ values, set }) {
  const [shown, show] = useState("");
  const make = () => {
    const numbers = crypto.getRandomValues(new Uint32Array(LONG));
    const password = [...numbers].map((each) => LETTERS[each % LETTERS.length]).join("");
    set({ ...values, password });
    show(password);
  };
  return html`<p class="gap"><button type="button" onClick=${make}>Make a password</button>${shown && shown === values.password && html`<code>${shown}</code>`}</p>`;
}

function change(row = null) {
  ask({
    title: row ? `Change ${row.name}` : "Add a user", verb: row ? "Change" : "Add", about: row ? "" : "It can do nothing until it has a permission in a virtual host.",
    values: { name: row ? row.name : "", password: "", tags: row ? row.tags.join(", ") : "", keep: Boolean(row) },
    fields: [
      ...(row ? [{ name: "keep", label: "Keep the password", type: "check" }] : [{ name: "name", label: "Name", required: true }]),
      { name: "password", label: row ? "Another password" : "Password", type: "password", hint: row ? "" : "Empty: it cannot log in with a password." },
      { name: "tags", label: "Tags", choices: TAGS, hint: `With commas between them: ${TAGS.join(", ")}.` },
    ],
    more: (values, set) => html`<${Maker} ...${{ values, set }} />`,
    plan: ({ name, password, tags, keep }) => {
      if (!name) throw new Error("A user needs a name.");
      const body = { tags };
      if (row && keep && !password) Object.assign(body, { password_hash: row.password_hash, hashing_algorithm: row.hashing_algorithm });
      else if (password) body.password = password;
      else if (row) throw new Error("Keep the password, or give another one.");
      return { requests: [{ method: "PUT", path: path("users", name), body }], commands: [command("declare user", { name, password: password || undefined, tags })], done: row ? `${name} is changed` : `${name} is there` };
    },
    done: row ? undefined : (answers, values) => { location.hash = link("users", values.name); },
  });
}

function remove(rows, done) {
  ask({
    title: rows.length === 1 ? `Delete ${rows[0].name}` : `Delete ${plural(rows.length, "user")}`, verb: "Delete", danger: true,
    about: `Their permissions go too, and their connections are closed.${rows.some((row) => row.name === me.value.name) ? " You are one of them." : ""}`,
    plan: () => ({
      requests: rows.length === 1 ? [{ method: "DELETE", path: path("users", rows[0].name) }] : [{ method: "POST", path: "/api/users/bulk-delete", body: { users: rows.map((row) => row.name) } }],
      commands: rows.map((row) => command("delete user", { name: row.name })), done: `${plural(rows.length, "user")} deleted`,
    }),
    changed: done,
  });
}

export function User({ parts: [name] }) {
  const found = useLoaded(path("users", name), /^user\./, [name]);
  const permissions = useLoaded(path("users", name, "permissions"), /permission/, [name]), topics = useLoaded(path("users", name, "topic-permissions"), /permission/, [name]);
  const it = found.value;
  if (found.error && found.error.status === 404) return html`<header><div><h1>${name}</h1></div></header><${Note} kind="warn" role="alert"><p>There is no user '${name}'.</p><a href=${link("users")}>To all users</a></${Note}>`;
  return html`<header><div><h1>${name}</h1><span class="soft">user</span></div><div class="gap"><button disabled=${!it} onClick=${() => change(it)}>Change…</button><button class="danger" onClick=${() => remove([{ name }], () => { location.hash = link("users"); })}>Delete…</button></div></header>
    <${Failure} error=${found.error} again=${found.again} />
    <div class="columns"><${Panel} title="What it is">${it && html`<${Facts} rows=${[["Tags", it.tags.length ? it.tags.map((tag) => html`<${Tag}>${tag}</${Tag}> `) : "none: it cannot use this console"], ["Password", it.password_hash ? `hashed by ${it.hashing_algorithm}` : "none"]]} />
        <p><a href=${link("connections", { q: `user:=${name}` })}>Its connections</a></p>`}</${Panel}>
      <${Limits} kind="user" name=${name} names=${{ "max-connections": "Connections", "max-channels": "Channels" }} /></div>
    <${Panel} title="Permissions" actions=${html`<button onClick=${() => grant({ user: name })}>Grant…</button>`}><${PermissionTable} rows=${permissions.value || []} by="vhost" /></${Panel}>
    <${Panel} title="Topic permissions" actions=${html`<button onClick=${() => grantTopic({ user: name })}>Set…</button>`}><${TopicPermissionTable} rows=${topics.value || []} /></${Panel}>
    <${Refusals} user=${name} />`;
}
