// Limits of virtual hosts and of users.

import { html } from "../core/html.js";
import { has, path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { number } from "../core/format.js";
import { ask } from "../parts/operation.js";
import { Failure, Panel } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";

/** The limits of one virtual host or user (`kind`). `names`: titles of the limits. */
export function Limits({ kind, name, names }) {
  const found = useLoaded(path(`${kind}-limits`, name), /limits/, [kind, name]);
  const limits = found.value && found.value.length ? found.value[0].value : {};
  return html`<${Panel} title="Limits"><${Failure} error=${found.error} /><${PlainTable} label="Limits" rows=${Object.entries(names)} columns=${[
    { title: "Of", show: ([, title]) => title },
    { title: "At most", number: true, show: ([limit]) => (limits[limit] === undefined || limits[limit] < 0 ? "no limit" : number(limits[limit])) },
    { title: "", show: ([limit, title]) => has("administrator") && html`<button class="small" onClick=${() => change(kind, name, limit, title, limits[limit], found.again)}>Change…</button>` },
  ]} /></${Panel}>`;
}

function change(kind, name, limit, title, now, again) {
  ask({
    title: `${title} of ${name}`, verb: "Set", about: "What is there already stays, also above a new limit.",
    values: { value: now === undefined || now < 0 ? "" : String(now) }, fields: [{ name: "value", label: "At most; empty for no limit", type: "number", min: 0, step: 1 }],
    plan: ({ value }) => {
      const where = path(`${kind}-limits`, name, limit);
      return { requests: [value === "" ? { method: "DELETE", path: where } : { method: "PUT", path: where, body: { value: Number(value) } }], done: value === "" ? "There is no limit any more" : `At most ${value}` };
    },
    changed: again,
  });
}
