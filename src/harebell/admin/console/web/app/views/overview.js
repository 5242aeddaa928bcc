// The overview: what happens on the broker now, and in the last ten minutes.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { get, has } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { useTopic } from "../core/live.js";
import { bytes, byteRate, duration, number, rate } from "../core/format.js";
import { link } from "../core/router.js";
import { Chart, ranges, samplesOf } from "../parts/chart.js";
import { Facts, Failure, Panel } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";

const AGE = 600, STEP = 5; // seconds of history at the start, and between its samples
const KEPT = 600; // points of a chart
const RATES = [
  ["publish", "published"], ["deliver_get", "delivered"], ["ack", "acknowledged"], ["confirm", "confirmed"],
  ["redeliver", "redelivered"], ["return_unroutable", "returned"], ["drop_unroutable", "dropped as unroutable"],
];
const LENGTHS = [["messages_ready", "ready"], ["messages_unacknowledged", "unacknowledged"]];

function total(rows, name) {
  return rows.reduce((sum, row) => sum + (row[name] || 0), 0);
}

export function Overview() {
  const vhosts = useTopic("vhosts"), node = useTopic("node").list[0];
  const overview = useLoaded("/api/overview", /^vhost\./);
  const rows = vhosts.list;
  const series = useSeries(rows, vhosts);
  return html`<header><div><h1>Overview</h1><span class="soft">${overview.value ? overview.value.cluster_name : ""}</span></div></header>
    <${Failure} error=${overview.error} again=${overview.again} />
    <div class="tiles">
      ${[["queues", "queues"], ["exchanges", "exchanges"], ["connections", "connections"], ["channels", "channels"], ["consumers", "consumers"]].map(([name, title]) => html`
        <a class="tile" href=${link(name)}><b>${number(total(rows, name))}</b><span>${title}</span></a>`)}
      <a class="tile" href=${link("queues", { sort: "-messages_ready" })}><b>${number(total(rows, "messages_ready"))}</b><span>messages ready</span></a>
      <a class="tile" href=${link("queues", { sort: "-messages_unacknowledged" })}><b>${number(total(rows, "messages_unacknowledged"))}</b><span>unacknowledged</span></a>
      <div class="tile"><b>${rate(total(rows, "publish")) || "0"}</b><span>published in a second</span></div>
      <div class="tile"><b>${rate(total(rows, "deliver_get")) || "0"}</b><span>delivered in a second</span></div>
      ${node && html`<${Meter} title="memory" now=${node.mem_used} most=${node.mem_limit} text=${`${bytes(node.mem_used)} of ${bytes(node.mem_limit)}`} />
        <${Meter} title="disk free" now=${node.disk_free_limit} most=${node.disk_free} text=${bytes(node.disk_free)} />
        <${Meter} title="descriptors" now=${node.fd_used} most=${node.fd_total} text=${`${number(node.fd_used)} of ${number(node.fd_total)}`} />`}
    </div>
    <div class="columns">
      <${Panel} title="Messages in queues"><${Chart} label="Messages in queues" group="overview" times=${series.times} series=${series.lengths} unit="messages" /></${Panel}>
      <${Panel} title="Message rates"><${Chart} label="Message rates" group="overview" times=${series.times} series=${series.rates} unit="rate" /></${Panel}>
    </div>
    <div class="columns">
      ${rows.length > 1 && html`<${Panel} title="Virtual hosts"><${PlainTable} label="Virtual hosts" rows=${rows} columns=${[
        { title: "Name", show: (row) => html`<a href=${link("vhosts", row.name)}>${row.name}</a>` },
        { title: "Queues", number: true, value: (row) => row.queues },
        { title: "Ready", number: true, value: (row) => row.messages_ready },
        { title: "In", number: true, show: (row) => rate(row.publish) },
        { title: "Out", number: true, show: (row) => rate(row.deliver_get) },
        { title: "Bytes in", number: true, phone: false, show: (row) => byteRate(row.recv_oct) },
        { title: "Bytes out", number: true, phone: false, show: (row) => byteRate(row.send_oct) },
      ]} /></${Panel}>`}
      ${overview.value && html`<${About} overview=${overview.value} node=${node} />`}
    </div>`;
}

function Meter({ title, now, most, text }) {
  const share = most ? Math.min(1, now / most) : 0;
  return html`<div class="tile"><b class="small">${text}</b><span>${title}</span>
    <div class=${`meter ${share > 0.95 ? "bad" : share > 0.8 ? "warn" : ""}`}><i style=${{ width: `${Math.round(share * 100)}%` }}></i></div></div>`;
}

function About({ overview, node }) {
  const nodes = useLoaded(has("monitoring") ? `/api/nodes/${encodeURIComponent(overview.node)}?columns=uptime,os_pid,db_dir,processors` : null);
  return html`<${Panel} title="Broker">
    <${Facts} rows=${[
      ["Product", `${overview.product_name} ${overview.product_version}`],
      ["Speaks as", `RabbitMQ ${overview.rabbitmq_version}`],
      ["Python", overview.erlang_version],
      ["Up for", nodes.value && duration(nodes.value.uptime / 1000)],
      ["Data", nodes.value && html`<code>${nodes.value.db_dir}</code>`],
      ["Connections opened and closed", node && `${rate(node.connection_created) || 0} and ${rate(node.connection_closed) || 0} in a second`],
    ]} />
    ${overview.listeners && html`<h3>Listens on</h3><${PlainTable} label="Listeners" rows=${overview.listeners} columns=${[
      { title: "Protocol", value: (row) => row.protocol },
      { title: "Address", value: (row) => row.ip_address },
      { title: "Port", show: (row) => String(row.port), number: true },
    ]} />`}</${Panel}>`;
}

/** The points of the charts: history from the API, then a point for each look of the stream. */
function useSeries(rows, found) {
  const kept = useRef({ times: [], lengths: LENGTHS.map(() => []), rates: RATES.map(() => []) });
  const [, draw] = useState(0);
  useEffect(() => {
    get(`/api/overview?${ranges(AGE, STEP)}&columns=queue_totals,message_stats`).then((found) => {
      const lengths = samplesOf(found.queue_totals, LENGTHS), stats = samplesOf(found.message_stats, RATES, { rates: true });
      const live = kept.current, from = live.times[0] || Infinity;
      const times = lengths.times.slice(1).filter((each) => each < from);
      const before = (values, skip) => values.slice(skip, skip + times.length);
      live.lengths = live.lengths.map((values, at) => [...before(lengths.series[at].values, 1), ...values]);
      live.rates = live.rates.map((values, at) => [...(stats.times.length ? before(stats.series[at].values, 0) : times.map(() => 0)), ...values]);
      live.times = [...times, ...live.times];
      draw((count) => count + 1);
    }, () => {});
  }, []);
  useEffect(() => {
    if (!rows.length || !found.looks) return;
    const live = kept.current, now = Date.now() / 1000;
    if (now - (live.times[live.times.length - 1] || 0) < 1) return;
    live.times.push(now);
    live.lengths.forEach((values, at) => values.push(total(rows, LENGTHS[at][0])));
    live.rates.forEach((values, at) => values.push(total(rows, RATES[at][0])));
    for (const values of [live.times, ...live.lengths, ...live.rates]) values.splice(0, values.length - KEPT);
    draw((count) => count + 1);
  }, [found.version.value]);
  const named = (kind, names) => names.map(([, label], at) => ({ label, values: kept.current[kind][at] }));
  return { times: kept.current.times, lengths: named("lengths", LENGTHS), rates: named("rates", RATES) };
}
