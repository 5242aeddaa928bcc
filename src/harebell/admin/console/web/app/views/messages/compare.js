// Two messages side by side: what differs in their addresses, properties, headers and bodies.

import { html, useMemo } from "../../core/html.js";
import { bytes } from "../../core/format.js";
import { Panel, value } from "../../parts/small.js";

const MOST_LINES = 400; // of a body that are compared; what follows is cut off
const CONTEXT = 3; // lines that are the same, around those that are not

/** Lines of two texts: [kind, line], kind " " in both, "-" in the first, "+" in the second. */
export function diff(one, other) {
  const a = one.split("\n").slice(0, MOST_LINES), b = other.split("\n").slice(0, MOST_LINES);
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width); // of the common lines from here on
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push([" ", a[i++]]);
      j++;
    } else if (j < b.length && (i === a.length || longest[i * width + j + 1] > longest[(i + 1) * width + j])) found.push(["+", b[j++]]);
    else found.push(["-", a[i++]]);
  }
  return found;
}

/** The lines that differ, with some around them; what is left out is a line of its own. */
function near(lines) {
  const keep = new Set();
  lines.forEach(([kind], at) => { if (kind !== " ") for (let each = at - CONTEXT; each <= at + CONTEXT; each++) keep.add(each); });
  const found = [];
  lines.forEach((line, at) => {
    if (keep.has(at)) found.push(line);
    else if (!found.length || found[found.length - 1][0] !== "…") found.push(["…", ""]);
  });
  return found;
}

function facts(message) {
  const { headers = {}, ...properties } = message.properties;
  const named = (prefix, table) => Object.entries(table).map(([name, each]) => [`${prefix}${name}`, value(each)]);
  return Object.fromEntries([["exchange", message.exchange], ["routing key", message.routing_key], ["size", bytes(message.payload_bytes)], ["deliveries", String(message.delivery_count)], ...named("", properties), ...named("header ", headers)]);
}

export function Compare({ one, other, close }) {
  const [a, b] = [facts(one), facts(other)];
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const differ = names.filter((name) => a[name] !== b[name]);
  const lines = useMemo(() => diff(one.body, other.body), [one, other]);
  const same = lines.every(([kind]) => kind === " ");
  const cut = Math.max(...[one, other].map((each) => each.body.split("\n").length)) > MOST_LINES;
  return html`<${Panel} title=${`Messages ${one.position} and ${other.position}`} actions=${html`<button onClick=${close}>Close</button>`}>
    ${differ.length ? html`<table class="plain-table" aria-label="What differs"><thead><tr><th scope="col">What differs</th><th scope="col">${one.position}</th><th scope="col">${other.position}</th></tr></thead>
        <tbody>${differ.map((name) => html`<tr><th scope="row">${name}</th>${[a, b].map((each) => html`<td>${each[name] === undefined ? html`<span class="soft">none</span>` : html`<code>${each[name]}</code>`}</td>`)}</tr>`)}</tbody></table>`
      : html`<p>Their addresses, properties and headers are the same.</p>`}
    <p class="soft">${names.length - differ.length} others are the same.</p>
    <h3>Bodies${one.form === other.form ? ` as ${one.form}` : ` as ${one.form} and ${other.form}`}</h3>
    ${same ? html`<p>They are the same.</p>` : html`<pre class="body-text" aria-label="Differences of the bodies">${near(lines).map(([kind, line]) => html`<span class=${{ "-": "bad", "+": "good" }[kind] || "soft"}>${kind} ${line}${"\n"}</span>`)}</pre>`}
    ${cut && html`<p class="soft">Only the first ${MOST_LINES} lines of each are compared.</p>`}</${Panel}>`;
}
