// Messages: publish one, and get some from a queue with each way to acknowledge.

import { html, useState } from "../core/html.js";
import { path, request } from "../core/api.js";
import { bytes, exchangeName, number, plural, time } from "../core/format.js";
import { command, download } from "../core/text.js";
import { ask } from "../parts/operation.js";
import { Field, tableOf } from "../parts/form.js";
import { Body } from "../parts/body.js";
import { Arguments, Facts, Panel, Tag, say } from "../parts/small.js";

const MODES = [
  ["ack_requeue_true", "Look: they return to the queue, marked as redelivered"],
  ["ack_requeue_false", "Take: they are acknowledged, and gone"],
  ["reject_requeue_true", "Reject, back to the queue: counts as a failed delivery"],
  ["reject_requeue_false", "Reject for good: dead-lettered, or dropped"],
];
const PROPERTIES = {
  content_type: "text", content_encoding: "text", priority: "number", correlation_id: "text", reply_to: "text", expiration: "text",
  message_id: "text", timestamp: "number", type: "text", user_id: "text", app_id: "text",
};

/** Ask for a message to publish. `message` fills the form, for publishing one again with changes. */
export function publishTo({ vhost, exchange, key = "", message = {} }) {
  ask({
    title: `Publish to ${exchangeName(exchange)}`, verb: "Publish",
    values: { routing_key: key, persistent: true, headers: [], properties: [], payload: "", base64: false, ...message },
    fields: [
      { name: "routing_key", label: "Routing key" },
      { name: "persistent", label: "Persistent: on the disk of durable queues", type: "check" },
      { name: "payload", label: "Body", type: "area" },
      { name: "base64", label: "The body is base64", type: "check" },
      { name: "headers", label: "Headers", type: "table" },
      { name: "properties", label: "Properties", type: "table", known: PROPERTIES },
    ],
    plan: (values) => {
      const headers = tableOf(values.headers), properties = { delivery_mode: values.persistent ? 2 : 1, ...tableOf(values.properties) };
      if (Object.keys(headers).length) properties.headers = headers;
      const body = { routing_key: values.routing_key, payload: values.payload, payload_encoding: values.base64 ? "base64" : "string", properties };
      return {
        requests: [{ method: "POST", path: path("exchanges", vhost, exchange || "amq.default", "publish"), body }],
        commands: [command("publish", { exchange: exchange || "amq.default", ...body }, vhost)],
      };
    },
    done: ([answer]) => (answer.routed ? say("Published: a queue has it") : say("Published, but it reached no queue", { kind: "bad" })),
  });
}

/** Get messages of a queue, as basic.get does. */
export function GetMessages({ vhost, name }) {
  const [values, set] = useState({ count: "5", ackmode: "ack_requeue_true", truncate: "50000" });
  const [got, setGot] = useState(null);
  const [problem, setProblem] = useState("");
  const fetch = async () => {
    setProblem("");
    try {
      const body = { count: Number(values.count), ackmode: values.ackmode, encoding: "auto", truncate: Number(values.truncate) };
      setGot(await request("POST", path("queues", vhost, name, "get"), body));
    } catch (error) {
      setProblem(error.message);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    if (values.ackmode === "ack_requeue_true") return fetch();
    const body = { count: Number(values.count), ackmode: values.ackmode, encoding: "auto", truncate: Number(values.truncate) };
    return ask({
      title: `Get from ${name}`, verb: "Get them", danger: true, about: MODES.find(([mode]) => mode === values.ackmode)[1] + ".",
      plan: () => ({ requests: [{ method: "POST", path: path("queues", vhost, name, "get"), body }], commands: [command("get", { queue: name, ackmode: values.ackmode, count: values.count }, vhost)] }),
      done: ([answer]) => setGot(answer),
    });
  };
  return html`<${Panel} title="Get messages">
      <form onSubmit=${submit} class="fields">
        <${Field} field=${{ name: "ackmode", label: "What becomes of them", type: "select", options: MODES }} ...${{ values, set }} />
        <${Field} field=${{ name: "count", label: "How many", type: "number", min: 1, max: 1000 }} ...${{ values, set }} />
        <${Field} field=${{ name: "truncate", label: "Bytes of each body", type: "number", min: 0 }} ...${{ values, set }} />
        <div class="field"><span class="label"> </span><button class="main">Get</button></div></form>
      ${problem && html`<div class="note bad" role="alert">${problem}</div>`}
      ${got && html`<p role="status">${got.length ? `${plural(got.length, "message")}, ${number(got[got.length - 1].message_count)} behind them.` : "The queue is empty."}
        ${got.length > 0 && html` <button onClick=${() => download(`${name.replace(/[^\w.-]/g, "_")}.json`, JSON.stringify(got, null, 1))}>Download them</button>`}</p>`}</${Panel}>
    ${got && got.map((message, at) => html`<${Message} key=${at} message=${message} />`)}`;
}

export function Message({ message, actions }) {
  const { headers = {}, ...properties } = Array.isArray(message.properties) ? {} : message.properties;
  return html`<${Panel} label="Message">
    <div class="gap"><b>${message.routing_key || html`<span class="soft">no routing key</span>`}</b><span class="soft">from ${exchangeName(message.exchange)}</span>
      <span class="soft">${bytes(message.payload_bytes)}</span>${message.redelivered && html`<${Tag} kind="warn">redelivered</${Tag}>`}<span class="grow"></span>${actions}</div>
    ${Object.keys(properties).length > 0 && html`<h3>Properties</h3><${Facts} rows=${Object.entries(properties).map(([name, value]) => [name, name === "timestamp" ? time(value * 1000) : String(value)])} />`}
    ${Object.keys(headers).length > 0 && html`<h3>Headers</h3><${Arguments} table=${headers} />`}
    <h3>Body</h3><${Body} message=${message} /></${Panel}>`;
}
