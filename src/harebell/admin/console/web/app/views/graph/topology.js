// Topology: the exchanges and queues of a virtual host as a graph, with bindings, alternate exchanges, dead letters and rates.
// The same is there as a table, for the keyboard and for readers of the screen.

import { html, useEffect, useMemo, useRef, useState } from "../../core/html.js";
import { get, path } from "../../core/api.js";
import { shade } from "../../core/keys.js";
import { useLoaded } from "../../core/load.js";
import { useTopic } from "../../core/live.js";
import { exchangeName, number, plural, rate } from "../../core/format.js";
import { link, parameter, setParameters } from "../../core/router.js";
import { download } from "../../core/text.js";
import { Field } from "../../parts/form.js";
import { Failure, Facts, Note, Panel, Tag } from "../../parts/small.js";
import { PlainTable } from "../../parts/table.js";
import { vhostNames } from "../queues.js";
import { around, build, exchangeId, places, queueId, rateOf } from "./model.js";

const MOST = 250; // nodes drawn
const MOST_WAYS = 200; // ways in the table
const LETTERS = 24, KEY_LETTERS = 16; // of a name in a node, of a key on an edge
const KINDS = { binding: "binding", alternate: "alternate exchange: what no binding matches", dead: "dead letters" };
let library = null;

async function load(vhost) {
  const [bindings, policies] = await Promise.all([get(path("bindings", vhost)), get(path("policies", vhost))]);
  return { bindings, policies: new Map(policies.map((each) => [each.name, each.definition])) };
}

/** Where a queue's dead letters go, by its arguments or its policy. */
function deadLetters(policies) {
  return (row) => {
    const rule = (row.policy && policies.get(row.policy)) || {};
    const exchange = row.arguments["x-dead-letter-exchange"] ?? rule["dead-letter-exchange"];
    return typeof exchange === "string" ? { exchange, key: row.arguments["x-dead-letter-routing-key"] ?? rule["dead-letter-routing-key"] ?? null } : null;
  };
}

export function Topology() {
  const queues = useTopic("queues"), exchanges = useTopic("exchanges"), vhosts = useTopic("vhosts");
  const vhost = parameter("vhost") || vhostNames()[0] || "/", find = parameter("find").toLowerCase().trim();
  const complete = queues.complete.value && exchanges.complete.value && vhosts.complete.value;
  const found = useLoaded(complete ? () => load(vhost) : null, /^(binding|exchange|queue|policy)\./, [vhost, complete]);
  const all = useMemo(() => {
    if (!found.value || !complete) return null;
    const here = (topic) => topic.list.filter((row) => row.vhost === vhost);
    return build({ exchanges: here(exchanges), queues: here(queues), bindings: found.value.bindings, deadLetters: deadLetters(found.value.policies) });
  }, [found.value, vhost, complete, queues.rows, exchanges.rows, queues.rows.size, exchanges.rows.size]);
  const large = all && all.nodes.length > MOST;
  const shown = useMemo(() => (all ? around(all, large || find ? find : "", MOST) : null), [all, find]);
  const [chosen, choose] = useState(null);
  const [cy, setCy] = useState(null);
  const picture = () => download("topology.png", cy.png({ full: true, scale: 2, output: "blob", bg: getComputedStyle(document.documentElement).getPropertyValue("--panel").trim(), maxWidth: 8000, maxHeight: 8000 }));
  const byId = useMemo(() => ({ nodes: new Map(shown ? shown.nodes.map((each) => [each.id, each]) : []), edges: shown ? shown.edges : [] }), [shown]);
  const node = chosen && byId.nodes.get(chosen);
  return html`<header><div><h1>Topology</h1><span class="soft">From left to right: exchanges, by their bindings to queues. Drag to move, turn the wheel to zoom, click a name.</span></div>
      <div class="gap"><button disabled=${!cy} onClick=${() => cy.fit(undefined, 30)}>Show all of it</button><button disabled=${!cy} onClick=${picture}>Save as PNG</button></div></header>
    <${Failure} error=${found.error} again=${found.again} />
    <div class="fields">${vhosts.complete.value && html`<${Field} field=${{ name: "vhost", label: "Virtual host", type: "select", options: vhostNames() }} values=${{ vhost }} set=${(values) => { choose(null); setParameters({ vhost: values.vhost }); }} />`}
      <div class="field"><label for="find">Search: a part of a name, with what it is connected to</label><input id="find" type="search" data-filter value=${parameter("find")} onInput=${(event) => setParameters({ find: event.target.value })} /></div></div>
    ${large && html`<${Note}>There are ${number(all.nodes.length)} exchanges and queues, of which ${number(MOST)} at most are drawn: search for those that you mean.</${Note}>`}
    ${!shown ? html`<p class="soft" role="status">Loading…</p>` : html`<p role="status" class="soft">${plural(shown.nodes.filter((each) => each.kind === "exchange").length, "exchange")}, ${plural(shown.nodes.filter((each) => each.kind === "queue").length, "queue")} and ${plural(shown.edges.length, "way")} between them.</p>
      ${shown.nodes.length === 0 ? html`<${Note}>Nothing is here that has that name.</${Note}>` : html`<${Graph} ...${{ shown, byId, choose, chosen, find, setCy }} version=${`${queues.version.value} ${exchanges.version.value}`} />`}
      <p class="gap small"><span class="tag on">exchange</span> <span class="tag good">queue</span> <span class="tag bad">missing</span> <span class="soft">solid: bindings; dotted: alternate exchange; dashed: dead letters. A rate with ≤ is that of all ways to its end.</span></p>
      ${node && html`<${Chosen} node=${node} vhost=${vhost} close=${() => choose(null)} />`}
      <${Ways} shown=${byId} vhost=${vhost} />`}`;
}

const short = (name, most = LETTERS) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);

function nodeLabel({ kind, name, row }) {
  if (!row) return `${short(name)}\nmissing`;
  if (kind === "exchange") return `${short(exchangeName(name))}\n${row.type}${row.publish_in ? `, ${rate(row.publish_in)}/s in` : ""}`;
  const numbers = [`${number(row.messages_ready ?? 0)} ready`, row.consumers ? plural(row.consumers, "consumer") : "no consumer"];
  return `${short(name)}\n${numbers.join(", ")}`;
}

function edgeLabel(edge, byId) {
  const keys = [...new Set(edge.keys)].filter(Boolean), found = rateOf(edge, byId);
  const text = keys.slice(0, 2).map((key) => short(key, KEY_LETTERS)).join(", ") + (keys.length > 2 ? ` +${keys.length - 2}` : "");
  const moved = found && found.rate ? `${found.sure ? "" : "≤ "}${rate(found.rate)}/s` : "";
  return [text, moved].filter(Boolean).join("\n");
}

function style() {
  const of = getComputedStyle(document.documentElement), colour = (name) => of.getPropertyValue(name).trim();
  const edge = { "curve-style": "bezier", "target-arrow-shape": "triangle", "arrow-scale": 0.9, width: 1.4, "line-color": colour("--soft"), "target-arrow-color": colour("--soft"), label: "data(label)", "font-size": 10, color: colour("--text"), "text-wrap": "wrap", "text-background-color": colour("--panel"), "text-background-opacity": 0.9, "text-background-padding": 2 };
  return [
    { selector: "node", style: { shape: "round-rectangle", width: 178, height: 38, label: "data(label)", "text-wrap": "wrap", "text-valign": "center", "text-halign": "center", "font-size": 11, color: colour("--text"), "background-color": colour("--back"), "border-width": 1.5, "border-color": colour("--accent") } },
    { selector: "node[kind = 'queue']", style: { "border-color": colour("--good"), shape: "rectangle" } },
    { selector: "node[kind = 'missing']", style: { "border-color": colour("--bad"), "border-style": "dashed" } },
    { selector: "edge", style: edge },
    { selector: "edge:loop", style: { "control-point-step-size": 190, "loop-direction": "-90deg", "loop-sweep": "-60deg" } },
    { selector: "edge[kind = 'alternate']", style: { "line-style": "dotted" } },
    { selector: "edge[kind = 'dead']", style: { "line-style": "dashed", "line-color": colour("--bad"), "target-arrow-color": colour("--bad") } },
    { selector: "edge[moves]", style: { width: 2.6, "line-color": colour("--accent"), "target-arrow-color": colour("--accent") } },
    { selector: ".found", style: { "border-width": 4 } },
    { selector: ".chosen", style: { "background-color": colour("--chosen"), "border-width": 3 } },
  ];
}

function Graph({ shown, byId, choose, chosen, find, version, setCy }) {
  const box = useRef(null), graph = useRef(null);
  const theme = shade.value;
  const structure = useMemo(() => [...shown.nodes.map((each) => each.id + each.kind), ...shown.edges.map((each) => each.id)].join("\u0001"), [shown]);
  const [ready, setReady] = useState(0);
  useEffect(() => {
    let gone = false, watch = null;
    library ||= import("../../../vendor/cytoscape.mjs");
    library.then(({ default: cytoscape }) => {
      if (gone || !box.current) return;
      cytoscape.warnings(false); // about edges that two nodes hide when they are dragged over each other
      const cy = cytoscape({ container: box.current, style: style(), maxZoom: 2.5, minZoom: 0.05, boxSelectionEnabled: false, autounselectify: true });
      cy.on("tap", "node", (event) => choose(event.target.id()));
      cy.on("tap", (event) => { if (event.target === cy) choose(null); });
      watch = new ResizeObserver(() => cy.resize());
      watch.observe(box.current);
      graph.current = cy;
      setCy(cy);
      setReady((count) => count + 1);
    });
    return () => {
      gone = true;
      if (watch) watch.disconnect();
      if (graph.current) graph.current.destroy();
      graph.current = null;
      setCy(null);
    };
  }, []);
  useEffect(() => { // what is there: nodes that stay keep their places until something comes or goes
    const cy = graph.current;
    if (!cy) return;
    const at = places(shown);
    cy.batch(() => {
      cy.elements().remove();
      cy.add([
        ...shown.nodes.map((each) => ({ group: "nodes", data: { id: each.id, kind: each.kind, label: nodeLabel(each) }, position: { ...at.get(each.id) } })),
        ...shown.edges.map((each) => ({ group: "edges", data: { id: each.id, source: each.source, target: each.target, kind: each.kind, label: edgeLabel(each, byId) } })),
      ]);
    });
    cy.fit(undefined, 30);
    if (cy.zoom() > 1.3) { cy.zoom(1.3); cy.center(); }
  }, [structure, ready]);
  useEffect(() => { // figures
    const cy = graph.current;
    if (!cy) return;
    cy.batch(() => {
      for (const each of shown.nodes) cy.getElementById(each.id).data("label", nodeLabel(each));
      for (const each of shown.edges) {
        const element = cy.getElementById(each.id), moved = rateOf(each, byId);
        element.data("label", edgeLabel(each, byId));
        if (moved && moved.rate) element.data("moves", 1);
        else element.removeData("moves");
      }
    });
  }, [version, structure, ready]);
  useEffect(() => {
    const cy = graph.current;
    if (!cy) return;
    cy.batch(() => cy.nodes().forEach((each) => {
      each.toggleClass("found", Boolean(find) && shown.matched.has(each.id()));
      each.toggleClass("chosen", each.id() === chosen);
    }));
  }, [find, chosen, structure, ready]);
  useEffect(() => { if (graph.current) graph.current.style(style()); }, [theme]);
  return html`<div class="graph panel" ref=${box} role="img" aria-label="The topology as a graph; the table below has the same."></div>`;
}

function Chosen({ node, vhost, close }) {
  const { kind, name, row } = node;
  const to = kind === "queue" ? link("queues", vhost, name) : link("exchanges", vhost, name || "amq.default");
  return html`<${Panel} title=${kind === "queue" ? name : exchangeName(name)} actions=${html`${row && html`<a class="button" href=${to}>Open its page</a>`}
      ${row && kind === "queue" && html`<a class="button" href=${link("browse", vhost, name)}>Browse messages</a>`}
      ${row && kind === "exchange" && html`<a class="button" href=${link("route", { vhost, exchange: name })}>Test a route</a>`}<button onClick=${close}>Close</button>`}>
    ${!row ? html`<p class="bad">It does not exist: what is sent there is dropped.</p>`
    : html`<${Facts} rows=${kind === "queue" ? [["Type", row.type], ["Ready", number(row.messages_ready)], ["Unacknowledged", number(row.messages_unacknowledged)], ["Consumers", number(row.consumers)], ["In", `${rate(row.publish) || 0}/s`], ["Delivered", `${rate(row.deliver_get) || 0}/s`], ["Policy", row.policy]]
      : [["Type", row.type], ["In", `${rate(row.publish_in) || 0}/s`], ["Out", `${rate(row.publish_out) || 0}/s`], ["Policy", row.policy], ["Alternate exchange", row.alternate]]} />`}</${Panel}>`;
}

function Ways({ shown, vhost }) {
  const end = (id) => { const node = shown.nodes.get(id); return html`<a href=${node.kind === "queue" || id === queueId(node.name) ? link("queues", vhost, node.name) : link("exchanges", vhost, node.name || "amq.default")}>${id === exchangeId(node.name) ? exchangeName(node.name) : node.name}</a>${node.kind === "missing" ? html` <${Tag} kind="bad">missing</${Tag}>` : ""}`; };
  const columns = [
    { title: "From", show: (edge) => end(edge.source) }, { title: "To", show: (edge) => end(edge.target) },
    { title: "By", show: (edge) => html`${edge.kind !== "binding" ? html`<span class="soft">${KINDS[edge.kind]}</span> ` : ""}<code>${[...new Set(edge.keys)].slice(0, 5).join(", ")}</code>` },
    { title: "In a second", number: true, phone: false, show: (edge) => { const found = rateOf(edge, shown); return found && found.rate ? `${found.sure ? "" : "≤ "}${rate(found.rate)}` : ""; } },
  ];
  return html`<${Panel} title="The same as a table"><${PlainTable} label="Ways" rows=${shown.edges.slice(0, MOST_WAYS)} columns=${columns} empty="No bindings, alternate exchanges or dead letters." />
    ${shown.edges.length > MOST_WAYS && html`<p class="soft">and ${number(shown.edges.length - MOST_WAYS)} more</p>`}</${Panel}>`;
}
