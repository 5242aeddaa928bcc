// Definitions: export them as a file, and import one, whole or not at all.

import { html, useState } from "../core/html.js";
import { get, path, request } from "../core/api.js";
import { plural } from "../core/format.js";
import { useTopic } from "../core/live.js";
import { download } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Failure, Panel, Tag, say, value } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";

const KINDS = ["vhosts", "users", "permissions", "topic_permissions", "parameters", "global_parameters", "policies", "exchanges", "queues", "bindings"];

export function Definitions() {
  const vhosts = useTopic("vhosts").list.map((row) => row.name).sort();
  const [vhost, setVhost] = useState("");
  const [error, setError] = useState(null);
  const where = vhost ? path("definitions", vhost) : "/api/definitions";
  const save = async () => {
    setError(null);
    try {
      const found = await get(where);
      download(`definitions-${new Date().toISOString().slice(0, 10)}.json`, JSON.stringify(found, null, 2));
      say(`Exported ${KINDS.filter((kind) => (found[kind] || []).length).map((kind) => `${found[kind].length} ${kind.replace("_", " ")}`).join(", ")}`);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<header><div><h1>Definitions</h1></div></header>
    <p>Definitions are everything that is declared, without messages: RabbitMQ reads the same files.</p><${Failure} error=${error} />
    <div class="bar"><label class="gap">of <select value=${vhost} onChange=${(event) => setVhost(event.target.value)}><option value="">the whole broker</option>${vhosts.map((name) => html`<option value=${name}>${name}</option>`)}</select></label></div>
    <div class="columns"><${Panel} title="Export"><p>${vhost ? "Queues, exchanges, bindings, policies and parameters of this virtual host." : "Everything, with users and the hashes of their passwords."}</p><button class="main" onClick=${save}>Download</button></${Panel}>
      <${Panel} title="Import"><${Import} where=${where} vhost=${vhost} /></${Panel}></div>`;
}

const SHOWN = 50; // objects of a plan
const FATES = { new: "is made", changed: "is set as the file has it", kept: "stays as it is, though the file differs" };

function Plan({ plan }) {
  const told = plan.objects.filter((each) => each.fate !== "new"), shown = [...told, ...plan.objects.filter((each) => each.fate === "new")].slice(0, SHOWN);
  return html`<p>${Object.entries(FATES).filter(([fate]) => plan[fate]).map(([fate, text]) => `${plan[fate]} ${text}`).join(", ") || "Nothing would change"}${plan.same ? `; ${plan.same} ${plan.same === 1 ? "is" : "are"} there already` : ""}.</p>
    ${shown.length > 0 && html`<${PlainTable} label="What would be done" rows=${shown} columns=${[
      { title: "", show: (row) => html`<${Tag} kind=${row.fate === "kept" ? "warn" : ""}>${row.fate}</${Tag}>` },
      { title: "What", show: (row) => html`${row.section.replace("_", " ").replace(/ies$/, "y").replace(/s$/, "")} <code>${Object.values(row.object).filter((part) => typeof part === "string" && part).join(" ")}</code>` },
      { title: "Differs", show: (row) => Object.entries(row.differs).map(([name, it], at) => html`${at ? ", " : ""}${name}${"now" in it ? html`: <code>${value(it.now ?? null)}</code> → <code>${value(it.file)}</code>` : ""}`) },
    ]} />`}${plan.objects.length > shown.length && html`<p class="soft">and ${plan.objects.length - shown.length} more</p>`}`;
}

function Import({ where, vhost }) {
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const read = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    setText(await file.text());
    setName(file.name);
  };
  const submit = (event) => {
    event.preventDefault();
    let document = null;
    try {
      document = JSON.parse(text);
    } catch (problem) {
      return say(`This is no JSON: ${problem.message}`, { kind: "bad" });
    }
    return ask({
      title: `Import into ${vhost || "the broker"}`, verb: "Import",
      prepare: async () => html`${await request("POST", `${where}?plan=true`, document).then((plan) => html`<${Plan} plan=${plan} />`)}`,
      about: `What the file has is added, or set as the file has it. Nothing is removed. After an error nothing has changed. The file has ${KINDS.filter((kind) => (document[kind] || []).length).map((kind) => plural(document[kind].length, kind.replace("_", " ").replace(/s$/, ""), kind.replace("_", " "))).join(", ") || "nothing that is known"}.`,
      plan: () => ({ requests: [{ method: "POST", path: where, body: document }], commands: [`rabbitmqadmin import ${name || "definitions.json"}`], done: "Imported" }),
    });
  };
  return html`<form onSubmit=${submit}><div class="field"><label for="file">A file</label><input id="file" type="file" accept=".json,application/json" onChange=${read} /></div>
    <div class="field"><label for="text">or its text</label><textarea id="text" rows="6" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></div>
    <button class="main" disabled=${!text.trim()}>Look at it, and import…</button></form>`;
}
