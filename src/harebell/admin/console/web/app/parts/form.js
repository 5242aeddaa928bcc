// Fields of forms. A form's values are one object; a field is {name, label, type, ...}. Types: text, password, number,
// select, check, area, tags, table (arguments or headers, each with a type).

import { html, useId } from "../core/html.js";

let ids = 0;

export function Field({ field, values, set }) {
  const id = useId(() => `field-${++ids}`);
  const { name, label, hint, type = "text", required } = field;
  const change = (value) => set({ ...values, [name]: value });
  const hintId = hint ? `${id}-hint` : undefined;
  if (type === "check") {
    return html`<div class="field"><span class="check"><input type="checkbox" id=${id} checked=${values[name]}
      aria-describedby=${hintId} onChange=${(event) => change(event.target.checked)} /><label for=${id}>${label}</label></span>
      ${hint && html`<span class="hint" id=${hintId}>${hint}</span>`}</div>`;
  }
  if (type === "table") {
    return html`<div class="field"><span class="label" id=${id}>${label}</span>
      <${Entries} entries=${values[name] || []} set=${change} known=${field.known} label=${label} />
      ${hint && html`<span class="hint">${hint}</span>`}</div>`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>
    ${type === "select" ? html`<select id=${id} aria-describedby=${hintId} value=${values[name]} onChange=${(event) => change(event.target.value)}>
        ${field.options.map((option) => { const [value, text] = Array.isArray(option) ? option : [option, option]; return html`<option value=${value} selected=${value === values[name]}>${text}</option>`; })}
      </select>`
    : type === "area" ? html`<textarea id=${id} aria-describedby=${hintId} rows=${field.rows || 6} spellcheck=${false} required=${required}
        value=${values[name] ?? ""} onInput=${(event) => change(event.target.value)}></textarea>`
    : html`<input id=${id} type=${type === "number" ? "number" : type === "password" ? "password" : "text"} required=${required}
        min=${field.min} max=${field.max} step=${field.step} aria-describedby=${hintId} list=${field.choices ? `${id}-list` : undefined}
        autocomplete=${type === "password" ? "new-password" : "off"} spellcheck=${false}
        value=${values[name] ?? ""} onInput=${(event) => change(event.target.value)} />`}
    ${field.choices && html`<datalist id=${`${id}-list`}>${field.choices.map((each) => html`<option value=${each}></option>`)}</datalist>`}
    ${hint && html`<span class="hint" id=${hintId}>${hint}</span>`}</div>`;
}

export function Fields({ fields, values, set }) {
  const wide = (field) => ["table", "area"].includes(field.type);
  return html`<div class="fields">${fields.filter((each) => !wide(each)).map((field) => html`<${Field} key=${field.name} ...${{ field, values, set }} />`)}</div>
    ${fields.filter(wide).map((field) => html`<${Field} key=${field.name} ...${{ field, values, set }} />`)}`;
}

// -- tables of named values with types

export const TYPES = { text: "text", number: "number", yes: "true/false", json: "JSON" };

function Entries({ entries, set, known = {}, label }) {
  const list = useId(() => `known-${++ids}`);
  const change = (at, values) => set(entries.map((each, number) => (number === at ? { ...each, ...values } : each)));
  const rename = (at, name) => change(at, name in known ? { name, type: known[name] } : { name });
  return html`<div class="entries" role="group" aria-label=${label}>
    ${entries.map((each, at) => html`<div class="entry" key=${at}>
      <input aria-label="Name" placeholder="name" list=${list} value=${each.name} spellcheck=${false} onInput=${(event) => rename(at, event.target.value)} />
      <select aria-label="Type" value=${each.type} onChange=${(event) => change(at, { type: event.target.value })}>
        ${Object.entries(TYPES).map(([type, text]) => html`<option value=${type} selected=${type === each.type}>${text}</option>`)}</select>
      ${each.type === "yes"
        ? html`<select aria-label="Value" value=${each.value} onChange=${(event) => change(at, { value: event.target.value })}>
            <option value="true" selected=${each.value !== "false"}>true</option><option value="false" selected=${each.value === "false"}>false</option></select>`
        : html`<input aria-label="Value" placeholder="value" value=${each.value} spellcheck=${false} onInput=${(event) => change(at, { value: event.target.value })} />`}
      <button type="button" aria-label=${`Remove ${each.name}`} onClick=${() => set(entries.filter((_, number) => number !== at))}>×</button></div>`)}
    <datalist id=${list}>${Object.keys(known).map((name) => html`<option value=${name}></option>`)}</datalist>
    <div><button type="button" onClick=${() => set([...entries, { name: "", type: "text", value: "" }])}>Add a line</button></div></div>`;
}

/** The table that entries describe. Throws an Error that says what is wrong. */
export function tableOf(entries = []) {
  const table = {};
  for (const { name, type, value } of entries) {
    if (!name && !value) continue;
    if (!name) throw new Error(`the value ${value} has no name`);
    table[name] = valueOf(name, type, value);
  }
  return table;
}

function valueOf(name, type, value) {
  if (type === "yes") return value !== "false";
  if (type === "number") {
    if (value === "" || Number.isNaN(Number(value))) throw new Error(`${name}: ${value || "nothing"} is no number`);
    return Number(value);
  }
  if (type !== "json") return value;
  try {
    return JSON.parse(value);
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
}

/** The entries that describe a table. */
export function entriesOf(table = {}) {
  return Object.entries(table).map(([name, value]) => {
    if (typeof value === "string") return { name, type: "text", value };
    if (typeof value === "number") return { name, type: "number", value: String(value) };
    if (typeof value === "boolean") return { name, type: "yes", value: String(value) };
    return { name, type: "json", value: JSON.stringify(value) };
  });
}
