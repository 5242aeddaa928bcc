// The palette (Ctrl K): go to any view, queue, exchange, connection or virtual host by a part of its name.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { has } from "../core/api.js";
import { palette } from "../core/keys.js";
import { topic, useTopic } from "../core/live.js";
import { go, link } from "../core/router.js";
import { exchangeName } from "../core/format.js";
import { MENU } from "../views/menu.js";
import { Modal } from "./operation.js";

const MOST = 30; // results shown

export function Palette() {
  return palette.value ? html`<${Open} />` : null;
}

function Open() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef(null);
  for (const name of ["queues", "exchanges", "connections", "vhosts"]) useTopic(name);
  const found = search(text.toLowerCase().trim());
  const close = () => { palette.value = false; };
  const open = (each) => {
    close();
    go(each.to);
  };
  const onKey = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      setAt((at + by + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter" && found[at]) {
      event.preventDefault();
      open(found[at]);
    }
  };
  useEffect(() => {
    const chosen = list.current.querySelector("[aria-selected=true]");
    if (chosen) chosen.scrollIntoView({ block: "nearest" });
  }, [at]);
  return html`<${Modal} kind="palette" label="Go to" close=${close}>
    <input type="text" role="combobox" aria-expanded="true" aria-controls="found" aria-label="Go to" aria-activedescendant=${`found-${at}`} autofocus autocomplete="off"
      placeholder="A view, a queue, an exchange, a connection…" value=${text} onInput=${(event) => { setText(event.target.value); setAt(0); }} onKeyDown=${onKey} />
    <ul id="found" role="listbox" aria-label="Found" ref=${list}>${found.map((each, number) => html`<li id=${`found-${number}`} role="option" aria-selected=${number === at} key=${each.to} onClick=${() => open(each)}>
      <span>${each.title}</span><span class="soft small">${each.kind}</span></li>`)}
      ${!found.length && html`<li class="soft" role="option" aria-disabled="true">Nothing has that name.</li>`}</ul></${Modal}>`;
}

function* everything() {
  for (const view of MENU.flatMap((group) => group.views)) {
    if (!view.tag || has(view.tag)) yield { title: view.title, kind: "view", to: link(...view.to) };
  }
  for (const row of topic("queues").list) yield { title: row.name, kind: `queue in ${row.vhost}`, to: link("queues", row.vhost, row.name) };
  for (const row of topic("exchanges").list) yield { title: exchangeName(row.name), kind: `exchange in ${row.vhost}`, to: link("exchanges", row.vhost, row.name || "amq.default") };
  for (const row of topic("vhosts").list) yield { title: row.name, kind: "virtual host", to: link("vhosts", row.name) };
  for (const row of topic("connections").list) yield { title: row.name, kind: `connection of ${row.user}`, to: link("connections", row.name) };
}

function search(text) {
  const words = text.split(/\s+/).filter(Boolean), best = [], good = [];
  for (const each of everything()) {
    const title = each.title.toLowerCase(), whole = `${title} ${each.kind}`;
    if (!words.every((word) => whole.includes(word))) continue;
    (text && title.startsWith(text) ? best : good).push(each);
    if (best.length >= MOST) break;
  }
  return [...best, ...good].slice(0, MOST);
}
