// Lists of any length: only the rows in sight are drawn. Type to filter, click a heading to sort.
//
// While the pointer or the focus is in the list, its rows stay where they are: figures change in place, rows that are
// gone are struck through, and new ones wait. So what is clicked is what was aimed at.
//
// A column: {id, title, head, value, show, width, number, phone, wide}: `value` is sorted and filtered by, `show` is what
// is drawn, `head` what is drawn as the heading in place of the title, `phone` columns are shown on a narrow screen too, `wide` ones only on a wide one.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../core/html.js";
import { parse } from "../core/filter.js";
import { number, plural } from "../core/format.js";
import { parameter, setParameters } from "../core/router.js";

const OVERSCAN = 8; // rows drawn above and below those in sight
const NARROW = 760, WIDE = 1200; // pixels of the window

/** The values of the columns by what a filter may call them: a column's title, in lower case and without spaces, or its id. */
function named(columns) {
  const by = (name) => columns.filter((each) => each.title).map((each) => [name(each), each.value]);
  return Object.fromEntries([...by((each) => each.title.toLowerCase().replaceAll(" ", "_")), ...by((each) => each.id.toLowerCase())]);
}

export function DataTable({
  id, rows, columns, keyOf, href, empty = "Nothing is here.", complete = true, actions = [], defaultSort, texts, bar, label,
  height = null, word = "row",
}) {
  const filter = parameter("q"), sort = parameter("sort", defaultSort || columns[0].id);
  const width = useWindowWidth();
  const [hidden, setHidden] = useHidden(id);
  const body = useRef(null);
  const [top, setTop] = useState(0);
  const [held, setHeld] = useState(false);
  const [active, setActive] = useState(null);
  const [chosen, setChosen] = useState(() => new Set());
  const order = useRef({ keys: [], of: "" });

  const shown = columns.filter((each) => (width < NARROW ? each.phone : !hidden.has(each.id) && (width >= WIDE || !each.wide)));
  const values = useMemo(() => named(columns), [columns]);
  const textOf = texts || ((row) => columns.filter((each) => !each.number).map((each) => each.value(row)).join(" ").toLowerCase());

  // The order: a new one unless it is held for the pointer.
  const byKey = new Map();
  for (const row of rows) byKey.set(keyOf(row), row);
  const asked = `${filter}\n${sort}`;
  if (!held || order.current.of !== asked || !order.current.rows) {
    const passes = parse(filter, textOf, values);
    const found = rows.filter(passes);
    const descending = sort.startsWith("-"), column = columns.find((each) => each.id === sort.replace("-", "")) || columns[0];
    sortRows(found, column.value, descending, keyOf);
    order.current = { keys: found.map(keyOf), of: asked, rows: new Map(found.map((row) => [keyOf(row), row])) };
  }
  const { keys, rows: last } = order.current;
  for (const key of keys) if (byKey.has(key)) last.set(key, byKey.get(key));
  let waiting = 0;
  if (held) {
    const passes = parse(filter, textOf, values);
    for (const [key, row] of byKey) waiting += !last.has(key) && passes(row);
  }

  const size = width < NARROW ? 40 : 32;
  const inSight = Math.ceil((body.current ? body.current.clientHeight : 600) / size);
  const first = Math.max(0, Math.min(Math.floor(top / size), keys.length - inSight) - OVERSCAN);
  const drawn = keys.slice(first, first + inSight + 2 * OVERSCAN);
  const template = { gridTemplateColumns: (actions.length && width >= NARROW ? "22px " : "") + shown.map((each) => each.width || (each.number ? "86px" : "minmax(90px, 1fr)")).join(" ") };

  const picked = [...chosen].filter((key) => byKey.has(key));
  const toggle = (key) => setChosen((before) => {
    const after = new Set(before);
    if (!after.delete(key)) after.add(key);
    return after;
  });
  const move = (by) => {
    const at = keys.indexOf(active), to = Math.max(0, Math.min(keys.length - 1, at < 0 ? 0 : at + by));
    setActive(keys[to]);
    const box = body.current;
    if (to * size < box.scrollTop) box.scrollTop = to * size;
    else if ((to + 1) * size > box.scrollTop + box.clientHeight) box.scrollTop = (to + 1) * size - box.clientHeight;
  };
  const onKey = (event) => {
    if (event.target !== body.current) return;
    const page = Math.max(1, inSight - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -keys.length, End: keys.length };
    if (event.key in moves) {
      event.preventDefault();
      move(moves[event.key]);
    } else if (event.key === "Enter" && active && href && byKey.has(active)) location.hash = href(byKey.get(active));
    else if (event.key === " " && active && actions.length) {
      event.preventDefault();
      toggle(active);
    }
  };
  useLayoutEffect(() => { if (body.current) body.current.scrollTop = 0; }, [asked]);

  const boxHeight = height || `min(${Math.max(3, keys.length) * size}px, calc(100dvh - 236px))`;
  return html`<div class="bar">
      <input type="search" aria-label=${`Filter ${label}`} placeholder="Filter: words, or column:value" value=${filter} data-filter
        onInput=${(event) => setParameters({ q: event.target.value })} />
      <span class="soft small" role="status">${complete ? (keys.length === rows.length ? plural(rows.length, word) : `${number(keys.length)} of ${plural(rows.length, word)}`) : "Loading…"}</span>
      ${bar}
      ${actions.length > 0 && picked.length > 0 && html`<span class="gap"><b>${plural(picked.length, "row")} chosen</b>
        ${actions.map((each) => html`<button class=${each.danger ? "danger" : ""} onClick=${() => each.run(picked.map((key) => byKey.get(key)), () => setChosen(new Set()))}>${each.label}</button>`)}
        <button class="plain" onClick=${() => setChosen(new Set())}>Choose none</button></span>`}
      <span class="grow"></span>
      <${Chooser} ...${{ columns, hidden, setHidden }} />
    </div>
    <div class="list" role="table" aria-label=${label} aria-rowcount=${keys.length + 1}
      onPointerEnter=${(event) => event.pointerType === "mouse" && setHeld(true)} onPointerLeave=${() => setHeld(false)}>
      <div class="head line" role="row" style=${template}>
        ${actions.length > 0 && width >= NARROW && html`<span role="columnheader"><input type="checkbox" aria-label="Choose all" checked=${picked.length > 0 && picked.length === keys.length}
          onChange=${(event) => setChosen(new Set(event.target.checked ? keys : []))} /></span>`}
        ${shown.map((each) => html`<div class=${`cell ${each.number ? "number" : ""}`} role="columnheader" aria-sort=${sort === each.id ? "ascending" : sort === `-${each.id}` ? "descending" : "none"}>
          <button onClick=${() => setParameters({ sort: nextSort(sort, each) })} title=${each.about || each.title}>${each.head ? each.head() : each.title}</button></div>`)}
      </div>
      <div class="body" role="rowgroup" tabindex="0" aria-label=${`Rows of ${label}`} ref=${body} style=${{ height: keys.length ? boxHeight : "auto" }}
        onScroll=${(event) => setTop(event.currentTarget.scrollTop)} onKeyDown=${onKey}
        onFocus=${(event) => { if (event.target === body.current && active === null && keys.length) setActive(keys[0]); }}>
        ${keys.length === 0 ? html`<div class="empty">${!complete ? "Loading…" : rows.length ? "No row passes the filter." : empty}</div>`
        : html`<div style=${{ height: `${keys.length * size}px` }}><div style=${{ transform: `translateY(${first * size}px)` }}>
          ${drawn.map((key, at) => {
            const row = last.get(key), there = byKey.has(key);
            const kind = `line ${key === active ? "active" : ""} ${chosen.has(key) ? "chosen" : ""} ${there ? "" : "gone"}`;
            return html`<div class=${kind} role="row" aria-rowindex=${first + at + 2} key=${key} style=${template} onPointerDown=${() => setActive(key)}>
              ${actions.length > 0 && width >= NARROW && html`<span role="cell"><input type="checkbox" tabindex="-1" aria-label=${`Choose ${key.split("\u0000").pop()}`} checked=${chosen.has(key)} onChange=${() => toggle(key)} /></span>`}
              ${shown.map((each) => html`<div class=${`cell ${each.number ? "number" : ""}`} role="cell">${each.show ? each.show(row) : each.number ? number(each.value(row)) : each.value(row)}</div>`)}</div>`;
          })}</div></div>`}
      </div>
      ${held && waiting > 0 && html`<div class="held">${plural(waiting, "new row")} will come when the pointer leaves the list.</div>`}
    </div>`;
}

function sortRows(rows, value, descending, keyOf) {
  const sign = descending ? -1 : 1;
  const keyed = rows.map((row) => [value(row), row]);
  keyed.sort(([a, one], [b, other]) => {
    const missing = (a === undefined || a === null || a === "") - (b === undefined || b === null || b === "");
    if (missing) return missing; // at the end, both ways
    if (a < b) return -sign;
    if (a > b) return sign;
    return keyOf(one) < keyOf(other) ? -1 : 1;
  });
  keyed.forEach(([, row], at) => { rows[at] = row; });
}

function nextSort(sort, column) {
  const first = column.number ? `-${column.id}` : column.id, second = column.number ? column.id : `-${column.id}`;
  return sort === first ? second : first;
}

function Chooser({ columns, hidden, setHidden }) {
  const toggle = (id) => {
    const after = new Set(hidden);
    if (!after.delete(id)) after.add(id);
    setHidden(after);
  };
  return html`<details class="chooser wide-only"><summary class="small soft">Columns</summary><div class="panel">
    ${columns.slice(1).map((each) => html`<label class="check"><input type="checkbox" checked=${!hidden.has(each.id)} onChange=${() => toggle(each.id)} />${each.title}</label>`)}</div></details>`;
}

function useHidden(id) {
  const name = `columns-${id}`;
  const [hidden, set] = useState(() => {
    try {
      return new Set(JSON.parse(localStorage.getItem(name) || "[]"));
    } catch {
      return new Set();
    }
  });
  return [hidden, (after) => {
    localStorage.setItem(name, JSON.stringify([...after]));
    set(after);
  }];
}

export function useWindowWidth() {
  const [width, set] = useState(innerWidth);
  useEffect(() => {
    const changed = () => set(innerWidth);
    addEventListener("resize", changed);
    return () => removeEventListener("resize", changed);
  }, []);
  return width;
}

/** A short table without filter, for a part of a page. Columns as above. */
export function PlainTable({ rows, columns, empty = "none", label }) {
  const width = useWindowWidth();
  if (!rows.length) return html`<p class="soft">${empty}</p>`;
  const shown = columns.filter((each) => width >= NARROW || each.phone !== false);
  return html`<table class="plain-table" aria-label=${label}><thead><tr>${shown.map((each) => html`<th scope="col" class=${each.number ? "number" : ""}>${each.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row, at) => html`<tr key=${at}>${shown.map((each) => html`<td class=${each.number ? "number" : ""}>${each.show ? each.show(row) : each.number ? number(each.value(row)) : each.value(row)}</td>`)}</tr>`)}</tbody></table>`;
}
