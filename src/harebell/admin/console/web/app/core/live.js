// What is live: one stream of events for this page, and the rows that it keeps up to date.
//
// A view says which topics it needs while it is shown. Rows of a topic are replaced in one go when all of them have
// come, so that a lost connection or a restart of the broker leaves what is on the screen until there is something newer.

import { batch, signal, useEffect } from "./html.js";
import { send, user } from "./api.js";

/** "connecting", "live" or "lost". */
export const state = signal("connecting");
/** The latest changes, newest first. */
export const changes = signal([]);

const MOST_CHANGES = 500;
const ALWAYS = ["node", "vhosts", "changes"];
const FIRST_PAUSE = 500; // milliseconds until the next try; doubled up to ...
const LONGEST_PAUSE = 8000;
const SILENCE = 40000; // milliseconds without a sign of life: the connection is dead

const KEYS = {
  node: ["name"], vhosts: ["name"], queues: ["vhost", "name"], exchanges: ["vhost", "name"],
  connections: ["name"], channels: ["name"], consumers: ["channel", "consumer_tag"], shovels: ["vhost", "name"], problems: ["id"],
};

/** A row's key: texts of its columns that no other row has together. */
export function keyOf(topic, row) {
  return KEYS[topic].map((name) => row[name]).join("\u0000");
}

class Topic {
  constructor(name) {
    this.name = name;
    this.version = signal(0); // changes with each event
    this.complete = signal(false); // all rows have come
    this.rows = new Map(); // by key
    this.ids = new Map(); // of the stream
    this.coming = null; // rows that come after a reset
    this.looks = 0; // since all rows came; rates are those of two looks
  }

  get list() {
    return [...this.rows.values()];
  }

  reset() {
    this.coming = new Map();
  }

  apply(columns, data) {
    const ids = this.coming || this.ids;
    for (const [id, ...values] of data.facts) {
      const row = ids.get(id) || {};
      columns.facts.forEach((name, at) => { row[name] = values[at]; });
      ids.set(id, row);
      if (!this.coming) this.rows.set(keyOf(this.name, row), row);
    }
    for (const [id, ...values] of data.figures) {
      const row = ids.get(id) || {};
      columns.figures.forEach((name, at) => { row[name] = values[at]; });
      ids.set(id, row);
    }
    for (const id of data.gone) {
      const row = ids.get(id);
      ids.delete(id);
      if (row && !this.coming && this.rows.get(keyOf(this.name, row)) === row) this.rows.delete(keyOf(this.name, row));
    }
    if (this.coming) return;
    this.looks++;
    this.version.value++;
  }

  finish() {
    this.ids = this.coming || this.ids;
    this.coming = null;
    this.looks = 0;
    this.rows = new Map([...this.ids.values()].filter((row) => this.name in KEYS).map((row) => [keyOf(this.name, row), row]));
    this.complete.value = true;
    this.version.value++;
  }
}

const topics = new Map();

export function topic(name) {
  if (!topics.has(name)) topics.set(name, new Topic(name));
  return topics.get(name);
}

/** The rows of a topic, for a component: it is drawn again when they change. */
export function useTopic(name, wanted = true) {
  const found = topic(name);
  useEffect(() => (wanted ? need(name) : undefined), [name, wanted]);
  found.version.value; // subscribes
  found.complete.value;
  return found;
}

// -- which topics are needed

const needed = new Map(ALWAYS.map((name) => [name, 1]));
let planned = null;

function need(name) {
  needed.set(name, (needed.get(name) || 0) + 1);
  plan();
  return () => {
    needed.set(name, needed.get(name) - 1);
    if (!needed.get(name)) needed.delete(name);
    plan();
  };
}

function plan() {
  clearTimeout(planned);
  planned = setTimeout(() => {
    const missing = [...needed.keys()].some((name) => !listening.includes(name));
    if (missing || listening.length > needed.size + 2) start();
  }, 20);
}

// -- listeners of changes, which load again what they show

const watchers = new Set();

/** Call `watcher` at each change whose name `matches` (a regular expression), and after changes were missed. */
export function useChanges(matches, watcher) {
  useEffect(() => {
    const each = { matches, watcher };
    watchers.add(each);
    return () => watchers.delete(each);
  });
}

function tell(change) {
  for (const each of watchers) if (change === null || each.matches.test(change.event)) each.watcher(change);
}

// -- the stream

let listening = [];
let abort = null;
let pause = FIRST_PAUSE;
let retry = null;

export function start() {
  stop();
  if (!user.value || document.hidden) return;
  listening = [...needed.keys()];
  abort = new AbortController();
  follow(listening, abort).then(lost, lost);
}

export function stop() {
  clearTimeout(retry);
  if (abort) abort.abort();
  abort = null;
}

function lost(error) {
  if (error && error.name === "AbortError") return;
  abort = null;
  if (!user.value) return;
  state.value = "lost";
  retry = setTimeout(start, pause);
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

async function follow(names, own) {
  const answer = await send("GET", `/api/events?topics=${names.join(",")}`, undefined, {}, own.signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const missed = state.value === "lost";
  let columns = {}, rest = "", silence;
  const quiet = () => own.abort();
  try {
    for (;;) {
      clearTimeout(silence);
      silence = setTimeout(() => { quiet(); lost(); }, SILENCE);
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      batch(() => {
        for (const part of parts) {
          const at = part.indexOf("\ndata: ");
          if (at < 0) continue; // a comment
          const name = part.slice("event: ".length, at), data = JSON.parse(part.slice(at + "\ndata: ".length));
          if (name === "topics") {
            columns = data;
            state.value = "live";
            pause = FIRST_PAUSE;
            if (missed) tell(null);
          } else if (name === "reset") topic(data.topic).reset();
          else if (name === "rows") topic(data.topic).apply(columns[data.topic], data);
          else if (name === "complete") topic(data.topic).finish();
          else if (name === "change") {
            changes.value = [data, ...changes.value].slice(0, MOST_CHANGES);
            tell(data);
          } else if (name === "lost") tell(null);
          // "end" says nothing more: the broker stops, or the session has ended. The next try finds out which.
        }
      });
    }
  } finally {
    clearTimeout(silence);
  }
}

// A page that nobody sees has no stream: browsers allow six connections to one server, for all of its pages.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) stop();
  else start();
});
