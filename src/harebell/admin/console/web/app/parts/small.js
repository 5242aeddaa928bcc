// Small parts: tags, facts, notes, copy buttons, messages in the corner, panels.

import { html, signal, useState } from "../core/html.js";
import { copy } from "../core/text.js";

/** Names and values, one under the other: facts([["Type", "classic"], ...]). Empty values are left out. */
export function Facts({ rows }) {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return html`<dl class="facts">${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${value === true ? "yes" : value}</dd>`)}</dl>`;
}

export function Tag({ kind = "", title, children }) {
  return html`<span class=${`tag ${kind}`} title=${title}>${children}</span>`;
}

export function Panel({ title, actions, children, label }) {
  return html`<section class="panel" aria-label=${label || (typeof title === "string" ? title : undefined)}>
    ${title && html`<h2><span class="grow">${title}</span>${actions}</h2>`}${children}</section>`;
}

export function Note({ kind = "", children, role }) {
  return html`<div class=${`note ${kind}`} role=${role}>${children}</div>`;
}

export function Failure({ error, again }) {
  if (!error) return null;
  return html`<div class="note bad" role="alert"><p>${error.message}</p>
    ${again && html`<button onClick=${again}>Try again</button>`}</div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [said, say] = useState("");
  const click = async () => {
    say((await copy(text)) ? "Copied" : "Select it to copy");
    setTimeout(() => say(""), 2000);
  };
  return html`<button class="small" onClick=${click}>${said || label}</button>`;
}

/** A value of JSON: text as it is, anything else as JSON. */
export function value(it) {
  return typeof it === "string" ? it : JSON.stringify(it);
}

export function Arguments({ table, empty = "none" }) {
  const names = Object.keys(table || {});
  if (!names.length) return html`<span class="soft">${empty}</span>`;
  return html`<dl class="facts">${names.map((name) => html`<dt class="mono">${name}</dt><dd class="mono">${value(table[name])}</dd>`)}</dl>`;
}

// -- messages in the corner

const toasts = signal([]);
let last = 0;

export function say(text, { kind = "good", seconds = 6, action = null } = {}) {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind, action }];
  setTimeout(() => drop(id), seconds * 1000);
}

function drop(id) {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">${toasts.value.map((each) => html`
    <div class=${`toast ${each.kind}`} key=${each.id}><span class="grow">${each.text}</span>
      ${each.action && html`<button onClick=${() => { drop(each.id); each.action.run(); }}>${each.action.label}</button>`}
      <button class="plain" aria-label="Close" onClick=${() => drop(each.id)}>×</button></div>`)}</div>`;
}
