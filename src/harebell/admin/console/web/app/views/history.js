// History: the last hour, of the whole broker or of one object. Drag in a chart to zoom, double-click to see all.

import { html, useEffect, useState } from "../core/html.js";
import { get, path } from "../core/api.js";
import { useTopic } from "../core/live.js";
import { parameter, setParameters } from "../core/router.js";
import { Chart, ranges, samplesOf } from "../parts/chart.js";
import { Failure, Panel } from "../parts/small.js";

const SPANS = { 300: [5, "5 minutes"], 900: [5, "15 minutes"], 1800: [10, "half an hour"], 3600: [10, "one hour"] };
const AGAIN = 10000; // milliseconds until newer samples are asked for
const LENGTHS = [["messages_ready", "ready"], ["messages_unacknowledged", "unacknowledged"]];
const RATES = [
  ["publish", "published"], ["deliver_get", "delivered"], ["ack", "acknowledged"], ["confirm", "confirmed"], ["redeliver", "redelivered"],
  ["return_unroutable", "returned"], ["drop_unroutable", "dropped as unroutable"],
];
const OCTETS = [["recv_oct", "from clients"], ["send_oct", "to clients"]];
const CHURN = [["connection_created", "connections opened"], ["connection_closed", "connections closed"], ["channel_created", "channels opened"], ["queue_created", "queues created"], ["queue_deleted", "queues deleted"]];

/** Samples of one object, asked for again every few seconds while they are shown. */
function useSamples(where, span) {
  const [result, set] = useState({ value: null, error: null });
  useEffect(() => {
    let gone = false, timer;
    const load = async () => {
      try {
        const value = await get(`${where}${where.includes("?") ? "&" : "?"}${ranges(span, SPANS[span][0])}`);
        if (!gone) set({ value, error: null });
      } catch (error) {
        if (!gone) set((last) => ({ ...last, error }));
      }
      if (!gone) timer = setTimeout(load, AGAIN);
    };
    load();
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [where, span]);
  return result;
}

function Span({ span }) {
  return html`<div class="gap" role="group" aria-label="Time">${Object.entries(SPANS).map(([each, [, text]]) => html`<button aria-pressed=${each === span} onClick=${() => setParameters({ span: each })}>${text}</button>`)}</div>`;
}

/** The last hour of an object whose path in the API is `where`. */
export function ObjectHistory({ path: where, lengths = null, rates = null, octets = false }) {
  const span = parameter("span", "3600");
  const { value, error } = useSamples(where, span in SPANS ? span : "3600");
  const stats = value && value.message_stats;
  return html`<div class="bar"><${Span} span=${span} /></div><${Failure} error=${error} />
    ${value && lengths && html`<${Panel} title="Messages"><${Chart} label="Messages" group="object" unit="messages" height=${220} ...${samplesOf(value, lengths)} /></${Panel}>`}
    ${value && rates && (stats ? html`<${Panel} title="Rates"><${Chart} label="Rates" group="object" unit="rate" height=${220} ...${samplesOf(stats, rates, { rates: true })} /></${Panel}>`
      : html`<${Panel} title="Rates"><p class="soft">No message has passed yet.</p></${Panel}>`)}
    ${value && octets && html`<${Panel} title="Bytes"><${Chart} label="Bytes" group="object" unit="bytesRate" height=${220} ...${samplesOf(value, OCTETS, { rates: true })} /></${Panel}>`}
    <p class="soft small">The broker keeps one hour in memory: the last minutes by 5 seconds, the rest by half a minute or more. Drag in a chart to zoom in, double-click to zoom out.</p>`;
}

export function History() {
  const span = parameter("span", "3600"), what = parameter("of");
  const vhosts = useTopic("vhosts").list.map((row) => row.name).sort();
  const wanted = span in SPANS ? span : "3600";
  return html`<header><div><h1>History</h1></div></header>
    <div class="bar"><${Span} span=${span} />
      <label class="gap">of <select value=${what} onChange=${(event) => setParameters({ of: event.target.value })}><option value="">the broker</option>
        ${vhosts.map((name) => html`<option value=${name} selected=${name === what}>${name}</option>`)}</select></label></div>
    ${what ? html`<${VhostHistory} key=${what} name=${what} span=${wanted} />` : html`<${BrokerHistory} span=${wanted} />`}
    <p class="soft small">The page of each queue, exchange, connection and channel has its own last hour. Drag in a chart to zoom in on all of them, double-click to zoom out.</p>`;
}

function BrokerHistory({ span }) {
  const { value, error } = useSamples("/api/overview?columns=queue_totals,message_stats,churn_rates,node", span);
  return html`<${Failure} error=${error} />${value && html`
    <${Panel} title="Messages in queues"><${Chart} label="Messages in queues" group="history" unit="messages" height=${220} ...${samplesOf(value.queue_totals, LENGTHS)} /></${Panel}>
    <${Panel} title="Message rates"><${Chart} label="Message rates" group="history" unit="rate" height=${220} ...${samplesOf(value.message_stats, RATES, { rates: true })} /></${Panel}>
    ${value.churn_rates && html`<${Panel} title="Connections, channels and queues opened and closed"><${Chart} label="Churn" group="history" unit="rate" ...${samplesOf(value.churn_rates, CHURN, { rates: true })} /></${Panel}>
      <${NodeHistory} node=${value.node} span=${span} />`}`}`;
}

function NodeHistory({ node, span }) {
  const { value } = useSamples(path("nodes", node), span);
  return value && html`<div class="columns"><${Panel} title="Memory"><${Chart} label="Memory" group="history" unit="bytes" ...${samplesOf(value, [["mem_used", "memory"]])} /></${Panel}>
    <${Panel} title="Free disk space"><${Chart} label="Free disk space" group="history" unit="bytes" ...${samplesOf(value, [["disk_free", "free"]])} /></${Panel}>
    <${Panel} title="Connections and descriptors"><${Chart} label="Descriptors" group="history" unit="number" ...${samplesOf(value, [["sockets_used", "connections"], ["fd_used", "descriptors"]])} /></${Panel}></div>`;
}

function VhostHistory({ name, span }) {
  const { value, error } = useSamples(`/api/vhosts?name=${encodeURIComponent(name)}&page=1&page_size=500`, span);
  const it = value && value.items.find((each) => each.name === name);
  return html`<${Failure} error=${error} />${it && html`
    <${Panel} title="Messages in queues"><${Chart} label="Messages in queues" group="history" unit="messages" height=${220} ...${samplesOf(it, LENGTHS)} /></${Panel}>
    <${Panel} title="Message rates"><${Chart} label="Message rates" group="history" unit="rate" height=${220} ...${samplesOf(it.message_stats, RATES, { rates: true })} /></${Panel}>
    <${Panel} title="Bytes"><${Chart} label="Bytes" group="history" unit="bytesRate" ...${samplesOf(it, OCTETS, { rates: true })} /></${Panel}>`}`;
}

