// What happened to a dead letter, from its header x-death, told from the first death to the last one.

import { html } from "../../core/html.js";
import { duration, exchangeName, plural, time } from "../../core/format.js";
import { link } from "../../core/router.js";
import { Panel } from "../../parts/small.js";

export const REASONS = {
  rejected: "a consumer rejected it", expired: "it expired", maxlen: "the queue was full", delivery_limit: "it had been delivered too often",
};

/** The deaths of a message, the latest first; [] for one that did not die, or whose header is no broker's. */
export function deathsOf(message) {
  const headers = message.properties && message.properties.headers, found = headers && headers["x-death"];
  if (!Array.isArray(found)) return [];
  return found.filter((each) => each && typeof each === "object" && typeof each.queue === "string" && typeof each.reason === "string")
    .map((each) => ({ ...each, count: Number(each.count) || 1, time: Number(each.time) || 0, keys: Array.isArray(each["routing-keys"]) ? each["routing-keys"].map(String) : [], exchange: String(each.exchange ?? "") }));
}

/** The story as steps: {at: seconds or 0, text, queue, after}. */
export function storyOf(message) {
  const deaths = deathsOf(message).sort((one, other) => one.time - other.time), steps = [];
  for (const each of deaths) {
    const via = `It came ${steps.length ? "again " : ""}by exchange ${exchangeName(each.exchange)} with the key ${each.keys.map((key) => `'${key}'`).join(", ") || "''"} to the queue`;
    const ttl = each["original-expiration"] !== undefined ? ` (its own time to live was ${duration(Number(each["original-expiration"]) / 1000)})` : "";
    steps.push({ at: each.time, via, queue: each.queue, reason: each.reason, text: `${REASONS[each.reason] || each.reason}${ttl}`, count: each.count });
  }
  return steps;
}

export function Story({ message, vhost, queue }) {
  const steps = storyOf(message);
  if (!steps.length) return null;
  const last = steps[steps.length - 1], first = steps[0], deaths = steps.reduce((sum, each) => sum + each.count, 0);
  return html`<${Panel} title="What happened to it"><ol class="story">${steps.map((each) => html`<li>
      ${each.via} <a href=${link("queues", vhost, each.queue)}>${each.queue}</a>. There <b>${each.text}</b>${each.count > 1 ? `, ${plural(each.count, "time")} in all, the first time` : ""}${each.at ? html` at <time>${time(each.at * 1000)}</time>, ${duration(Math.max(0, Date.now() / 1000 - each.at))} ago` : ""}.</li>`)}
      <li>It came as a dead letter to <b>${queue}</b>${message.exchange || message.routing_key ? `, by exchange ${exchangeName(message.exchange)} with the key '${message.routing_key}'` : ""}, where it waits.</li></ol>
    <p class="soft">It died ${plural(deaths, "time")}${last !== first && last.at && first.at ? `, over ${duration(last.at - first.at)}` : ""}. ${advice(last, queue)}</p></${Panel}>`;
}

function advice({ reason, queue: died }, queue) {
  if (died === queue) return "It died in this queue itself: to send it back would change nothing.";
  return {
    rejected: "To send it back helps once the consumer can handle it: look into the consumer's log at the time above.",
    expired: `To send it back helps if ${died} is now consumed in time; it may expire there again.`,
    maxlen: `To send it back helps once ${died} has room: see its limit, and whether it is consumed.`,
    delivery_limit: `It was given back, or lost its consumer, too often in ${died}: look for a consumer that fails on it.`,
  }[reason] || "";
}
