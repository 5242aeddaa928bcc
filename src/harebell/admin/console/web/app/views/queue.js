// One queue: what it has and does now, its consumers and bindings, and all that can be done with it.

import { html } from "../core/html.js";
import { get, has, path } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { keyOf, useTopic } from "../core/live.js";
import { bytes, duration, exchangeName, number, plural, rate, time } from "../core/format.js";
import { link } from "../core/router.js";
import { command } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { entriesOf, tableOf } from "../parts/form.js";
import { Arguments, Facts, Failure, Note, Panel } from "../parts/small.js";
import { Tabs } from "../parts/tabs.js";
import { BindingTable, bindTo } from "./bindings.js";
import { ConsumerTable } from "./clients.js";
import { Features, QUEUE_ARGUMENTS, purge, remove } from "./queues.js";
import { ObjectHistory } from "./history.js";
import { GetMessages, publishTo } from "./messages.js";

const LENGTHS = [["messages_ready", "ready"], ["messages_unacknowledged", "unacknowledged"]];
const RATES = [["publish", "in"], ["deliver_get", "delivered"], ["ack", "acknowledged"], ["redeliver", "redelivered"]];

export function Queue({ parts: [vhost, name = ""] }) {
  const live = useTopic("queues");
  const row = live.rows.get(keyOf("queues", { vhost, name }));
  const where = path("queues", vhost, name);
  const found = useLoaded(where, /^(queue|consumer|policy|operator)\./, [where]);
  const it = found.value;
  const gone = (found.error && found.error.status === 404) || (live.complete.value && !row && it);
  if (found.error && found.error.status === 404) {
    return html`<header><div><h1>${name}</h1></div></header><${Note} kind="warn" role="alert"><p>There is no queue '${name}' in virtual host '${vhost}', or you may not see it.</p><a href=${link("queues")}>To all queues</a></${Note}>`;
  }
  return html`<header><div><h1>${name}</h1><span class="soft">${row ? row.type : "queue"} in <a href=${link("vhosts", vhost)}>${vhost}</a> ${row && html`<${Features} row=${row} />`}</span></div>
      <div class="gap">
        <a class="button" href=${link("browse", vhost, name)}>Browse messages</a>
        <button onClick=${() => publishTo({ vhost, exchange: "", key: name })}>Publish…</button>
        <button onClick=${() => bindTo({ vhost, kind: "q", name })}>Bind…</button>
        <button disabled=${!it} onClick=${() => change(vhost, name, it)}>Change arguments…</button>
        ${has("policymaker") && html`<button onClick=${() => move(vhost, name)}>Move messages…</button>`}
        <button class="danger" onClick=${() => purge([{ vhost, name }])}>Purge…</button>
        <button class="danger" onClick=${() => remove([{ vhost, name, type: it && it.type }])}>Delete…</button>
      </div></header>
    ${gone && html`<${Note} kind="warn" role="alert">This queue has been deleted. What is shown is what it was.</${Note}>`}
    <${Failure} error=${found.error} again=${found.again} />
    <${Tabs} name="tab" tabs=${{
      now: ["Now", () => html`<${Now} ...${{ vhost, name, row, it }} />`],
      messages: ["Messages", () => html`<${GetMessages} ...${{ vhost, name, row }} />`],
      history: ["Last hour", () => html`<${ObjectHistory} path=${where} lengths=${LENGTHS} rates=${RATES} />`],
    }} />`;
}

function Now({ vhost, name, row, it }) {
  const consumers = useTopic("consumers");
  const own = consumers.list.filter((each) => each.vhost === vhost && each.queue === name);
  const figures = row ? [
    ["Ready", number(row.messages_ready)], ["Unacknowledged", number(row.messages_unacknowledged)],
    ["In", `${rate(row.publish) || 0}/s`], ["Delivered", `${rate(row.deliver_get) || 0}/s`], ["Acknowledged", `${rate(row.ack) || 0}/s`],
    ["Redelivered", `${rate(row.redeliver) || 0}/s`], ["Consumers", number(row.consumers)],
  ] : [];
  const policies = it && [it.policy, it.operator_policy].some(Boolean);
  return html`<div class="tiles">${figures.map(([title, text]) => html`<div class="tile"><b>${text}</b><span>${title}</span></div>`)}</div>
    <div class="columns">
      <${Panel} title="What it is">${it && html`<${Facts} rows=${[
        ["Type", it.type], ["Durable", it.durable ? "yes" : "no: it is gone after a restart"], ["Deleted when unused", it.auto_delete],
        ["Exclusive to", it.owner_pid_details && html`<a href=${link("connections", it.owner_pid_details.name)}>${it.owner_pid_details.name}</a>`],
        ["State", it.state], ["Idle since", it.idle_since && time(Date.parse(it.idle_since))], ["Created", time(it.created_at)],
        ["Delayed messages", it.messages_delayed ? number(it.messages_delayed) : null],
        ["Dead letters on their way", it.messages_dlx ? number(it.messages_dlx) : null],
        ["Oldest message published", it.head_message_timestamp && `${time(it.head_message_timestamp * 1000)}, ${duration(Date.now() / 1000 - it.head_message_timestamp)} ago, as its publisher says`],
        ["Single active consumer", it.single_active_consumer_tag],
      ]} />`}
        <h3>Arguments</h3>${it && html`<${Arguments} table=${it.arguments} />`}</${Panel}>
      <${Panel} title="Policies">${it && html`
        ${policies ? html`<p>${it.policy && html`Policy <a href=${link("policies", { q: it.policy })}>${it.policy}</a>. `}${it.operator_policy && html`Operator policy <a href=${link("policies", { q: it.operator_policy })}>${it.operator_policy}</a>.`}</p>
          <${Arguments} table=${it.effective_policy_definition} />` : html`<p class="soft">No policy applies to it.</p>`}`}
        <h3>Sizes</h3>${it && html`<${Facts} rows=${[
          ["Bodies of all messages", bytes(it.message_bytes)], ["... of those ready", bytes(it.message_bytes_ready)], ["... in memory", bytes(it.message_bytes_ram)],
          ["Messages in memory", number(it.messages_ram)], ["Messages only on disk", number(it.messages_paged_out)], ["Memory", bytes(it.memory)],
        ]} />`}</${Panel}>
    </div>
    <${Panel} title=${`Consumers (${own.length})`}><${ConsumerTable} rows=${own} queue=${false} /></${Panel}>
    <${Panel} title="Bindings to it" actions=${html`<button onClick=${() => bindTo({ vhost, kind: "q", name })}>Bind…</button>`}>
      <${BindingTable} path=${path("queues", vhost, name, "bindings")} ends=${["source"]} /></${Panel}>`;
}

/** Change arguments in place: those that are new, other, or gone. */
function change(vhost, name, it) {
  ask({
    title: `Change the arguments of ${name}`, verb: "Change",
    about: "Messages, bindings and consumers stay where they are. A later declaration must have the new arguments.",
    values: { arguments: entriesOf(it.arguments) },
    fields: [{ name: "arguments", label: "Arguments", type: "table", known: QUEUE_ARGUMENTS }],
    plan: ({ arguments: entries }) => {
      const after = tableOf(entries), changes = {};
      for (const key of Object.keys(it.arguments)) if (!(key in after)) changes[key] = null;
      for (const [key, value] of Object.entries(after)) if (JSON.stringify(value) !== JSON.stringify(it.arguments[key])) changes[key] = value;
      if (!Object.keys(changes).length) throw new Error("Nothing is different yet.");
      return { requests: [{ method: "PATCH", path: path("queues", vhost, name), body: { arguments: changes } }], done: `${name} has other arguments` };
    },
  });
}

/** Move all messages to another queue, by a shovel that ends when it has moved them. */
function move(vhost, name) {
  ask({
    title: `Move the messages of ${name}`, verb: "Move",
    about: "A shovel moves the messages that are there now, and then ends. Each message is acknowledged here after the other queue has confirmed it.",
    values: { queue: "" },
    prepare: async () => plural((await get(`${path("queues", vhost, name)}?columns=messages_ready`)).messages_ready, "message") + " are ready now.",
    fields: [{ name: "queue", label: "To the queue, in this virtual host", required: true }],
    plan: ({ queue }) => {
      if (!queue) throw new Error("Where to?");
      if (queue === name) throw new Error("A queue cannot be moved to itself.");
      const value = { "src-uri": "amqp://", "src-queue": name, "dest-uri": "amqp://", "dest-queue": queue, "src-delete-after": "queue-length", "ack-mode": "on-confirm", "add-forward-headers": false };
      const shovel = `Move from ${name}`;
      return {
        requests: [{ method: "PUT", path: path("parameters", "shovel", vhost, shovel), body: { value } }],
        commands: [command("declare parameter", { component: "shovel", name: shovel, value }, vhost)],
        done: `The shovel '${shovel}' has begun`,
      };
    },
  });
}

