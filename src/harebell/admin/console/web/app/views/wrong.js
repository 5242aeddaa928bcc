// What is wrong now: each problem with the reason, and what to do next. The broker finds them; the words are here.

import { html } from "../core/html.js";
import { useTopic } from "../core/live.js";
import { bytes, duration, exchangeName, number, plural } from "../core/format.js";
import { link } from "../core/router.js";
import { Tag } from "../parts/small.js";

const MOST = 200; // problems shown
const FULL = { "drop-head": "its oldest messages then leave for new ones", "reject-publish": "the broker then refuses new ones", "reject-publish-dlx": "new ones are then dead-lettered at once" };
const percent = (figure, limit) => `${Math.round((100 * figure) / Math.max(1, limit))} %`;
const queue = (it, name = it.name) => html`<a href=${link("queues", it.vhost, name)}>${name}</a>`;
const exchange = (it, name) => html`<a href=${link("exchanges", it.vhost, name || "amq.default")}>${exchangeName(name)}</a>`;
const connection = (it, name) => html`<a href=${link("connections", name)}>${name}</a>`;

/** Of each kind: how bad it is, what is so, and what to do. A problem that may lose messages is "bad". */
const KINDS = {
  alarm: ["bad", "Publishers are blocked", (it) => html`The ${it.name} alarm is on.`, () => html`Free <a href=${link("node")}>memory or disk</a>: consume or purge long queues. Publishers go on by themselves.`],
  no_consumers: ["bad", "A queue grows, and nobody consumes it", (it) => html`${queue(it)} has ${plural(it.figure, "message")} and no consumer, and more come.`, (it) => html`Start its consumer, or delete the queue or its bindings if it is not needed. <a href=${link("browse", it.vhost, it.name)}>Look at its messages.</a>`],
  unroutable: ["bad", "Messages reached no queue", (it) => html`In <a href=${link("vhosts", it.vhost)}>${it.vhost}</a> ${plural(it.figure, "message")} had no queue: dropped, or returned to a publisher that asked for it.`, (it) => html`<a href=${link("route", { vhost: it.vhost })}>Test the route</a> of such a message; a binding may be missing.`],
  dead_letter_exchange: ["bad", "Dead letters are dropped", (it) => html`${queue(it)} sends its dead letters to the exchange '${it.more.missing}', which does not exist.`, () => "Declare that exchange and bind a queue to it, or change the argument or the policy."],
  alternate_exchange: ["bad", "An alternate exchange is missing", (it) => html`${exchange(it, it.name)} sends what has no binding to '${it.more.missing}', which does not exist.`, () => "Declare that exchange, or change the argument or the policy."],
  blocked: ["bad", "A publisher is blocked", (it) => html`${connection(it, it.name)} of user ${it.more.user} publishes, and an alarm blocks it.`, () => html`See the alarm on <a href=${link("node")}>the node's page</a>.`],
  shovel: ["bad", "A shovel does not run", (it) => html`<a href=${link("shovels")}>${it.name}</a>: ${it.more.reason || "it has ended"}.`, () => "Correct its addresses or names, and start it again."],
  slow_consumers: ["warn", "A queue grows faster than it is consumed", (it) => html`${queue(it)} has ${plural(it.figure, "message")}, and more come than its consumers take.`, () => "Add consumers, make them faster, or raise their prefetch."],
  length: ["warn", "A queue is nearly full", (it) => html`${queue(it)} has ${number(it.figure)} of ${plural(it.limit, "message")} (${percent(it.figure, it.limit)}): ${FULL[it.more.overflow] || it.more.overflow}.`, () => "Consume faster, or raise the limit."],
  bytes: ["warn", "A queue is nearly full", (it) => html`${queue(it)} has ${bytes(it.figure)} of ${bytes(it.limit)} (${percent(it.figure, it.limit)}): ${FULL[it.more.overflow] || it.more.overflow}.`, () => "Consume faster, or raise the limit."],
  prefetch: ["warn", "A consumer has all that it may", (it) => html`Consumer ${it.name} of ${queue(it, it.more.queue)} has not acknowledged its ${plural(it.figure, "delivery", "deliveries")}, and ${plural(it.limit, "message")} wait.`, (it) => html`It is slow, hangs, or its prefetch is too small. <a href=${link("channels", it.more.channel)}>See its channel.</a>`],
  unacked: ["warn", "A delivery is not acknowledged", (it) => html`Channel <a href=${link("channels", it.name)}>${it.name}</a> of user ${it.more.user} has ${plural(it.figure, "unacknowledged delivery", "unacknowledged deliveries")}${it.more.queues.length ? html` of ${it.more.queues.map((each, at) => html`${at ? ", " : ""}${queue(it, each)}`)}` : ""}, the oldest since then.`, (it) => html`Look for work that hangs, or a forgotten acknowledgement, in that client. <a href=${link("ack-ages")}>Compare the ages</a> of all consumers. To close ${connection(it, it.more.connection)} gives them back.`],
  unsent: ["warn", "A client does not read", (it) => html`${connection(it, it.name)} of user ${it.more.user} has not taken ${bytes(it.figure)} that were sent to it.`, () => "Look at that client: it is overloaded, hangs, or its network is slow. A smaller prefetch limits what waits for it."],
  connections: ["warn", "Near the limit of connections", (it) => html`<a href=${link("vhosts", it.vhost)}>${it.vhost}</a> has ${number(it.figure)} of ${plural(it.limit, "connection")}.`, () => "New ones will be refused. Close those that are not needed, or raise the limit."],
  queues: ["warn", "Near the limit of queues", (it) => html`<a href=${link("vhosts", it.vhost)}>${it.vhost}</a> has ${number(it.figure)} of ${plural(it.limit, "queue")}.`, () => "New ones will be refused. Delete those that are not needed, or raise the limit."],
  memory: ["warn", "Memory is nearly used up", (it) => html`The node uses ${bytes(it.figure)} of ${bytes(it.limit)} (${percent(it.figure, it.limit)}); at the limit publishers are blocked.`, () => html`See <a href=${link("node")}>what uses it</a>, and consume long queues.`],
  disk: ["warn", "The disk is nearly full", (it) => html`${bytes(it.figure)} are free; below ${bytes(it.limit)} publishers are blocked.`, () => "Free some disk, or consume long queues."],
  descriptors: ["warn", "File descriptors are nearly used up", (it) => html`${number(it.figure)} of ${number(it.limit)} are in use.`, () => "Raise the limit of the process (ulimit -n), or close connections."],
  draining: ["warn", "The node is being drained", () => "It takes no new connections.", () => "Start it again when the work on it is done."],
};
const ORDER = Object.keys(KINDS);

export function Wrong() {
  const found = useTopic("problems");
  const rows = found.list.filter((row) => KINDS[row.kind]).sort((one, other) => ORDER.indexOf(one.kind) - ORDER.indexOf(other.kind) || one.since - other.since);
  const now = Date.now();
  return html`<header><div><h1>What is wrong</h1><span class="soft">Looked at every two seconds or so while this page is open, in the virtual hosts that you see.</span></div></header>
    <p role="status">${!found.complete.value ? "Looking…" : rows.length ? plural(rows.length, "problem") : "Nothing is wrong that the broker can see."}</p>
    <ul class="problems">${rows.slice(0, MOST).map((it) => { const [kind, title, what, next] = KINDS[it.kind]; return html`<li class="panel" key=${it.id}>
      <h2><${Tag} kind=${kind}>${kind === "bad" ? "acts now" : "soon"}</${Tag}> <span class="grow">${title}</span> <span class="soft small">${it.since && now - it.since >= 1000 ? `for ${duration((now - it.since) / 1000)}` : "just now"}</span></h2>
      <p>${what(it)}</p><p class="next"><b>Next:</b> ${next(it)}</p></li>`; })}</ul>
    ${rows.length > MOST && html`<p class="soft">and ${number(rows.length - MOST)} more, of the kinds above or after them.</p>`}`;
}
