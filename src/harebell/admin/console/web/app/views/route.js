// Route tester: where a message with this key and these headers would go, and why. Nothing is published.
// What is asked is in the address, so that an answer can be sent to somebody else.

import { html, useEffect, useState } from "../core/html.js";
import { has, path, query, user } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { useTopic } from "../core/live.js";
import { bytes, duration, exchangeName, number, plural } from "../core/format.js";
import { link, parameter, place, setParameters } from "../core/router.js";
import { Fields, entriesOf, tableOf } from "../parts/form.js";
import { Failure, Note, Panel, Tag, value } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";
import { publishTo } from "./messages.js";
import { vhostNames } from "./queues.js";

const MISSES = 100; // bindings without a match that are shown of each exchange
const PROPERTIES = { user_id: "text", expiration: "text", message_id: "text", correlation_id: "text", timestamp: "number", priority: "number", type: "text", app_id: "text", content_type: "text" };
const FIELDS = ["vhost", "exchange", "key", "headers", "properties", "payload", "as"];

function read() {
  const given = Object.fromEntries(FIELDS.map((name) => [name, parameter(name)]));
  return { ...given, headers: entries(given.headers), properties: entries(given.properties), as: given.as || (user.value && user.value.name) || "" };
}

function entries(text) {
  try {
    return entriesOf(JSON.parse(text || "{}"));
  } catch {
    return []; // typed by hand
  }
}

/** The path of the API for what the address asks. */
function asked() {
  const own = user.value && user.value.name, as = parameter("as");
  return path("exchanges", parameter("vhost"), parameter("exchange") || "amq.default", "explain") + query({
    routing_key: parameter("key"), headers: parameter("headers"), properties: parameter("properties"), payload: parameter("payload"), misses: MISSES, user: as === own ? "" : as,
  });
}

export function RouteTester() {
  const vhosts = useTopic("vhosts"), exchanges = useTopic("exchanges");
  const [values, set] = useState(read);
  const [problem, setProblem] = useState("");
  const address = place.value.parameters.toString();
  useEffect(() => set(read()), [address]);
  const vhost = values.vhost || vhostNames()[0] || "/";
  const names = exchanges.list.filter((row) => row.vhost === vhost).map((row) => row.name || "amq.default").sort();
  const test = (event) => {
    event.preventDefault();
    try {
      const table = (list) => { const found = tableOf(list); return Object.keys(found).length ? JSON.stringify(found) : ""; };
      const own = user.value && user.value.name;
      setParameters({ vhost, exchange: values.exchange, key: values.key, headers: table(values.headers), properties: table(values.properties), payload: values.payload, as: values.as === own ? "" : values.as, tested: "1" });
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  };
  if (!vhosts.complete.value) return html`<header><div><h1>Route tester</h1></div></header><p class="soft">Loading…</p>`;
  return html`<header><div><h1>Route tester</h1><span class="soft">Where a message would go, and why. Nothing is published.</span></div></header>
    <${Panel} label="The message"><form onSubmit=${test}>
      <${Fields} values=${{ ...values, vhost }} set=${set} fields=${[
        { name: "vhost", label: "Virtual host", type: "select", options: vhostNames() },
        { name: "exchange", label: "Exchange", choices: names, hint: "Empty: the default exchange." },
        { name: "key", label: "Routing key" },
        { name: "payload", label: "Body", hint: "Only for types of exchange that look at it." },
        ...(has("administrator") ? [{ name: "as", label: "Published by the user", hint: "Whose permissions are checked." }] : []),
        { name: "headers", label: "Headers", type: "table", hint: "With CC and BCC (JSON lists) for more keys, and x-delay." },
        { name: "properties", label: "Properties", type: "table", known: PROPERTIES },
      ]} />
      ${problem && html`<${Note} kind="bad" role="alert">${problem}</${Note}>`}
      <button class="main">Test</button></form></${Panel}>
    ${parameter("tested") && html`<${Answer} />`}`;
}

function Answer() {
  const where = asked();
  const found = useLoaded(where, /^(binding|exchange|queue|policy|operator|permission|topic|user|vhost)[._]/, [where]);
  const it = found.value;
  if (found.error) return html`<${Failure} error=${found.error.status === 404 ? { message: `There is no exchange '${parameter("exchange")}' in virtual host '${parameter("vhost")}', or you may not see it.` } : found.error} again=${found.again} />`;
  if (!it) return html`<p class="soft" role="status">Looking…</p>`;
  const held = it.steps.find((step) => step.outcome === "delayed");
  return html`<div role="status">${it.permission.allowed
      ? html`<${Note}>User '${it.permission.user}' may publish it.</${Note}>`
      : html`<${Note} kind="bad"><b>User '${it.permission.user}' may not publish it</b>: ${it.permission.reason}. The route below is that of a user who may.</${Note}>`}
    ${held && html`<${Note} kind="warn">Exchange '${held.exchange}' holds it back for ${duration(held.delay / 1000)}; it is routed then, by the bindings of then.</${Note}>`}
    ${!held && !it.queues.length && html`<${Note} kind="warn"><b>It reaches no queue.</b> The broker drops it, or returns it when it is published as mandatory.</${Note}>`}</div>
    ${it.queues.length > 0 && html`<${Panel} title=${`It reaches ${plural(it.queues.length, "queue")}`} actions=${it.permission.allowed && it.permission.user === user.value?.name && html`<button onClick=${() => publish(it)}>Publish it…</button>`}>
      <${PlainTable} label="Queues" rows=${it.queues.map((each) => ({ ...each, vhost: it.vhost }))} columns=${QUEUES} /></${Panel}>`}
    ${it.steps.map((step, at) => html`<${Step} key=${step.exchange} step=${step} vhost=${it.vhost} number=${at + 1} />`)}`;
}

function publish(it) {
  const given = read();
  publishTo({ vhost: it.vhost, exchange: it.exchange, key: parameter("key"), message: { headers: given.headers, properties: given.properties, payload: given.payload } });
}

const QUEUES = [
  { id: "name", title: "Queue", value: (row) => row.name, show: (row) => html`<a href=${link("queues", row.vhost, row.name)}>${row.name}</a> ${!row.certain && html`<${Tag} kind="warn" title="A random choice decides">perhaps</${Tag}>`}` },
  { id: "ready", title: "Ready", number: true, value: (row) => row.messages_ready },
  { id: "consumers", title: "Consumers", number: true, value: (row) => row.consumers },
  { id: "rules", title: "Policies", value: (row) => row.policy || "", show: (row) => html`${row.policy && html`<a href=${link("policies", { q: row.policy })}>${row.policy}</a> `}${row.operator_policy && html`<span class="soft">operator:</span> ${row.operator_policy}`}`, phone: false },
  { id: "limits", title: "What becomes of it there", value: limits },
];

/** The limits of a queue, as a sentence about the next message. */
function limits({ limits: of = {}, messages_ready: ready = 0 }) {
  const full = of.max_length !== undefined && ready >= of.max_length;
  const refuse = { "reject-publish": "the broker refuses it", "reject-publish-dlx": "it is dead-lettered at once" }[of.overflow];
  const most = [of.max_length !== undefined && plural(of.max_length, "message"), of.max_length_bytes !== undefined && bytes(of.max_length_bytes)].filter(Boolean).join(" and ");
  const parts = [
    most && (full ? `The queue is full (${most}): ${refuse || "the oldest message leaves for it"}.` : `The queue takes ${most} at most.`),
    of.message_ttl !== undefined && `It expires after ${duration(of.message_ttl / 1000)}.`,
    of.dead_letter_exchange !== undefined && `Dead letters go to ${exchangeName(of.dead_letter_exchange)}.`,
  ].filter(Boolean);
  return parts.join(" ") || "It waits for a consumer.";
}

const BINDINGS = [
  { id: "matches", title: "", value: (row) => (row.matches ? "matches" : "no match"), show: (row) => html`<${Tag} kind=${row.matches ? "good" : ""}>${row.matches ? "matches" : "no match"}</${Tag}>` },
  { id: "destination", title: "To", value: (row) => row.destination, show: (row) => html`<span class="soft">${row.destination_type}</span> <a href=${link(row.destination_type === "queue" ? "queues" : "exchanges", row.vhost, row.destination)}>${row.destination}</a> ${row.again && html`<${Tag} title="The message was at that exchange before, and does not go there again">again</${Tag}>`}` },
  { id: "key", title: "Key", value: (row) => row.routing_key, show: (row) => html`<code>${row.routing_key}</code>` },
  { id: "arguments", title: "Arguments", value: (row) => value(row.arguments), show: (row) => (Object.keys(row.arguments).length ? html`<code>${value(row.arguments)}</code>` : ""), phone: false },
  { id: "reason", title: "Why", value: (row) => row.reason },
];

function Step({ step, vhost, number: at }) {
  const rows = [...step.matches.map((each) => ({ ...each, matches: true })), ...(step.misses || []).map((each) => ({ ...each, matches: false }))];
  const left = step.bindings - rows.length;
  const outcome = {
    matched: step.chosen_by === "chance" && step.bindings > 1 ? `one of ${plural(step.bindings, "binding")}, by chance` : `${number(step.matched)} of ${plural(step.bindings, "binding")} match`,
    alternate: html`no binding matches: it goes to the alternate exchange <a href=${link("exchanges", vhost, step.alternate)}>${step.alternate}</a>${!step.alternate_exists && ", which does not exist"}`,
    delayed: `held back for ${step.delay} ms`,
    nothing: step.bindings ? "no binding matches" : "it has no bindings",
  }[step.outcome];
  return html`<${Panel} label=${`Step ${at}`}><h2><span>${at}. <a href=${link("exchanges", vhost, step.exchange || "amq.default")}>${exchangeName(step.exchange)}</a></span> <span class="soft small">${step.type}</span>
      ${!step.certain && html`<${Tag} kind="warn" title="A random choice before it decides">perhaps</${Tag}>`}</h2><p>${outcome}</p>
    ${rows.length > 0 && html`<${PlainTable} label=${`Bindings of ${step.exchange}`} rows=${rows} columns=${BINDINGS} />`}
    ${left > 0 && step.outcome !== "delayed" && html`<p class="soft">and ${number(left)} more</p>`}</${Panel}>`;
}
