// The console: the frame around all views, the menu, who is logged in.

import { Component, html, render, useEffect, useState } from "./core/html.js";
import { has, login, logout, user, whoami } from "./core/api.js";
import { help, nextTheme, palette, shortcut, shortcuts, theme } from "./core/keys.js";
import { start, state, stop, useTopic } from "./core/live.js";
import { link, place } from "./core/router.js";
import { number, plural } from "./core/format.js";
import { Modal, Operations } from "./parts/operation.js";
import { Palette } from "./parts/palette.js";
import { Failure, Toasts } from "./parts/small.js";
import { MENU, viewOf } from "./views/menu.js";

const HERE = new URL("..", import.meta.url);

function App() {
  const [problem, setProblem] = useState(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    whoami().then(() => setProblem(null), (error) => {
      setProblem(error);
      const retry = setTimeout(() => setTries(tries + 1), 3000);
      return () => clearTimeout(retry);
    });
  }, [tries]);
  useEffect(() => {
    if (user.value) start();
    else stop();
  }, [user.value && user.value.name]);
  const seen = useKept(user.value);
  if (user.value === undefined) return html`<main class="login">${problem ? html`<${Failure} error=${problem} />` : html`<p class="soft">One moment…</p>`}</main>`;
  if (user.value === null && !seen) return html`<${Login} />`;
  return html`<${Frame} />${user.value === null && html`<${Modal} label="Log in again" close=${() => {}}><${Login} again=${seen} /></${Modal}>`}`;
}

/** The last user of this page, so that a session that ends leaves what is on the screen, and a form that was filled in. */
function useKept(now) {
  const [kept, keep] = useState(null);
  useEffect(() => { if (now) keep(now); }, [now]);
  return kept;
}

function Login({ again }) {
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const { username, password } = event.target.elements;
    setBusy(true);
    try {
      const other = again && again.name !== username.value;
      await login(username.value, password.value);
      if (other) location.reload(); // another user must not get what the last one saw
      start();
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  const form = html`<form onSubmit=${submit}>
    ${!again && html`<img src=${new URL("style/icon.svg", HERE)} alt="" />`}<h1>${again ? "The session has ended" : "Harebell"}</h1>
    ${again && html`<p>Log in again: nothing on this page is lost.</p>`}
    <div class="field"><label for="username">User</label><input id="username" name="username" autocomplete="username" required autofocus value=${again ? again.name : ""} /></div>
    <div class="field"><label for="password">Password</label><input id="password" name="password" type="password" autocomplete="current-password" required /></div>
    ${problem && html`<div class="note bad" role="alert">${problem}</div>`}
    <button class="main" disabled=${busy}>${busy ? "Checking…" : "Log in"}</button></form>`;
  return again ? form : html`<main class="login">${form}</main>`;
}

function Frame() {
  const [menu, setMenu] = useState(false);
  const { parts } = place.value;
  const view = viewOf(parts);
  useEffect(() => setMenu(false), [place.value]);
  useEffect(() => { document.title = `${[...parts].slice(0, 3).join(" / ") || "overview"} – Harebell`; }, [place.value]);
  useEffect(() => {
    shortcut("/", "Filter the list", () => { const field = document.querySelector("[data-filter]"); if (field) { field.focus(); field.select(); } });
    shortcut("?", "Show the shortcuts", () => { help.value = true; });
    shortcut("t", "Change the theme", nextTheme);
    for (const { shortcut: key, title, to } of MENU.flatMap((group) => group.views).filter((each) => each.shortcut)) {
      shortcut(key, title, () => { location.hash = link(...to); });
    }
  }, []);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main").focus(); }}>Skip to the content</a>
    <div class=${`frame ${menu ? "menu" : ""}`}>
      <${Top} menu=${menu} setMenu=${setMenu} />
      <${Menu} parts=${parts} />
      <main id="main" tabindex="-1"><${Guard} key=${parts.join("/")}><${view.component} key=${parts.join("/")} parts=${parts.slice(1)} /></${Guard}></main>
    </div>
    <${Operations} /><${Palette} /><${Help} /><${Toasts} />`;
}

/** Shows what went wrong in a view, instead of nothing at all. */
class Guard extends Component {
  constructor() {
    super();
    this.state = { error: null };
  }

  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    if (!error) return children;
    return html`<div class="note bad" role="alert"><p>This view failed: ${String(error)}</p><button onClick=${() => this.setState({ error: null })}>Show it again</button></div>`;
  }
}

function Top({ menu, setMenu }) {
  const node = useTopic("node").list[0];
  const alarms = node ? node.alarms : [];
  const themes = { system: "as the system", light: "light", dark: "dark" };
  return html`<div class="top" role="banner">
    <button class="menu-button" aria-expanded=${menu} aria-controls="menu" onClick=${() => setMenu(!menu)}>Menu</button>
    <a class="brand" href=${link("overview")}><img src=${new URL("style/icon.svg", HERE)} alt="" />Harebell</a>
    <span class="where soft small">${node ? node.name : location.host}</span>
    <${Connection} />
    ${alarms.map((each) => html`<a class="tag bad" href=${link("node")}>${each} alarm: publishers are blocked</a>`)}
    ${node && node.being_drained && html`<span class="tag warn">being drained</span>`}
    <span class="grow"></span>
    <button onClick=${() => { palette.value = true; }} aria-keyshortcuts="Control+K">Go to… <span class="soft small wide-only">Ctrl K</span></button>
    <button onClick=${nextTheme} title="Change the theme" aria-label=${`Theme: ${themes[theme.value]}`}>${{ system: "◐", light: "☀", dark: "☾" }[theme.value]}</button>
    <span class="small wide-only" title=${user.value ? user.value.tags.join(", ") : ""}>${user.value && user.value.name}</span>
    <button onClick=${async () => { await logout(); location.reload(); }}>Log out</button></div>`;
}

function Connection() {
  const texts = { connecting: ["", "connecting"], live: ["good", "live"], lost: ["bad", "no connection: trying again"] };
  const [kind, text] = texts[state.value];
  return html`<span class=${`tag ${kind}`} role="status">${text}</span>`;
}

function Menu({ parts }) {
  const current = parts[0] || "overview";
  const vhosts = useTopic("vhosts").list;
  const total = (name) => vhosts.reduce((sum, each) => sum + (each[name] || 0), 0);
  return html`<nav class="side" id="menu" aria-label="Views">${MENU.map(({ title, views }) => {
    const shown = views.filter((each) => !each.tag || has(each.tag));
    return shown.length > 0 && html`<h2>${title}</h2>${shown.map((each) => html`<a href=${link(...each.to)} aria-current=${current === each.to[0] ? "page" : undefined}>
      <span>${each.title}</span>${each.count && html`<span class="count">${number(total(each.count))}</span>`}</a>`)}`;
  })}</nav>`;
}

function Help() {
  if (!help.value) return null;
  const close = () => { help.value = false; };
  return html`<${Modal} label="Shortcuts" close=${close}><h2>Shortcuts</h2>
    <dl class="facts"><dt><kbd>Ctrl K</kbd></dt><dd>Go to any object or view</dd>${shortcuts().map(({ key, about }) => html`<dt><kbd>${key}</kbd></dt><dd>${about}</dd>`)}
      <dt>in a list</dt><dd>arrows, Page up and down, Home, End; Enter opens, Space chooses</dd></dl>
    <p class="soft">None of them works while you type into a field. ${plural(shortcuts().length, "shortcut")}.</p>
    <div class="buttons"><button class="main" autofocus onClick=${close}>Close</button></div></${Modal}>`;
}

render(html`<${App} />`, document.getElementById("app"));
