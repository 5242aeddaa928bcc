// Why denied: what permissions refused lately, by which pattern, and the smallest grant that would allow it.

import { html } from "../core/html.js";
import { has, path } from "../core/api.js";
import { exchangeName, time } from "../core/format.js";
import { useLoaded } from "../core/load.js";
import { link } from "../core/router.js";
import { Failure, Panel, Tag } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";
import { grant, grantTopic } from "./permissions.js";

const LATEST = 20;
const CHANGES = /^(permission|topic)\./;

function what(row) {
  if (row.kind === "topic") return html`${row.act} with the key <code>${row.name}</code> at ${exchangeName(row.exchange)}`;
  return html`${row.act} of ${row.kind} <code>${row.name}</code>`;
}

function by(row) {
  if (row.pattern === null) return "no permission in this virtual host";
  return html`${row.right} ${row.pattern === "" ? html`<span class="soft">none</span>` : html`<code>${row.pattern}</code>`}`;
}

/** The refusals of one user, or of all who may be seen; nothing where there are none. */
export function Refusals({ user = "" }) {
  const found = useLoaded(path("refusals"), CHANGES, []);
  const rows = (found.value || []).filter((row) => !user || row.user === user).slice(0, LATEST);
  if (!rows.length && !found.error) return null;
  const open = (row) => (row.kind === "topic" ? grantTopic({ user: row.user, vhost: row.vhost, ...row.grant }) : grant({ user: row.user, vhost: row.vhost, ...row.grant }, true));
  return html`<${Panel} title="Refused lately">
    <${Failure} error=${found.error} again=${found.again} />
    <${PlainTable} label="Refused lately" rows=${rows} empty="Nothing." columns=${[
      { title: "At", show: (row) => html`<span title=${new Date(row.last_at).toLocaleString("en-GB")}>${time(row.last_at)}${row.count > 1 ? `, ${row.count} times` : ""}</span>` },
      { title: "User", show: (row) => html`<a href=${link("users", row.user)}>${row.user}</a>` },
      { title: "What", show: what }, { title: "In", value: (row) => row.vhost }, { title: "Refused by", show: by },
      { title: "", show: (row) => (row.allowed ? html`<${Tag}>allowed now</${Tag}>` : has("administrator") ? html`<button class="small" onClick=${() => open(row)}>Allow it…</button>` : "") },
    ]} />
  </${Panel}>`;
}
