// Ack ages: how long the deliveries of each consumer have not been acknowledged, as a heatmap, beside its prefetch.

import { html, useEffect } from "../core/html.js";
import { has, path, user } from "../core/api.js";
import { duration, number } from "../core/format.js";
import { useLoaded } from "../core/load.js";
import { link } from "../core/router.js";
import { Failure } from "../parts/small.js";
import { DataTable } from "../parts/table.js";

const MOST = 500; // consumers shown: those with the oldest deliveries
const EVERY = 5000; // milliseconds: the broker samples as often
const WHERE = `${path("ack-ages")}?page=1&page_size=${MOST}`;
/** The ranges of the API: the name there, the heading, and what it means. */
const RANGES = [
  ["10s", "10s", "under 10 s"], ["30s", "30s", "10 to 30 s"], ["1m", "1m", "30 s to 1 min"], ["5m", "5m", "1 to 5 min"],
  ["10m", "10m", "5 to 10 min"], ["30m", "30m", "10 to 30 min"], ["1h", "1h", "30 min to 1 h"], ["more", "1h+", "1 h or more"],
];
const compact = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 0 });

function Heat({ row }) {
  const all = row.messages_unacknowledged;
  const there = RANGES.map(([name, , about]) => [row.deliveries_by_age[name], about]);
  const said = there.filter(([count]) => count).map(([count, about]) => `${about}: ${number(count)}`).join(", ");
  return html`<div class="heat" role="img" aria-label=${said || "none"}>${there.map(([count, about]) => html`
    <span style=${{ "--share": count ? Math.max(0.08, count / all) : 0 }} title=${`${number(count)} of ${number(all)}: ${about}`}>${count ? compact.format(count) : ""}</span>`)}</div>`;
}

const HEAD = () => html`<span class="hidden">Ages</span><span class="heat" aria-hidden="true">${RANGES.map(([, title, about]) => html`<span title=${about}>${title}</span>`)}</span>`;
const age = (value) => (value === null ? "" : value ? duration(value / 1000) : "< 5 s");
const seconds = (value) => (value === null ? null : value / 1000);

function prefetchOf(row) {
  if (row.prefetch_count) return number(row.prefetch_count);
  return row.global_prefetch_count ? `${number(row.global_prefetch_count)} in all` : "none";
}

function Unacked({ row }) {
  const full = row.prefetch_count > 0 && row.messages_unacknowledged >= row.prefetch_count;
  return html`<span class=${full ? "warn" : ""} title=${full ? "As many as its prefetch allows" : undefined}>${number(row.messages_unacknowledged)}</span>`;
}

function Consumer({ row }) {
  const { name, user: owner } = row.channel_details;
  return has("monitoring") || owner === user.value.name ? html`<a href=${link("channels", name)} title=${name}>${row.consumer_tag}</a>` : row.consumer_tag;
}

const toQueue = (row) => link("queues", row.queue.vhost, row.queue.name);
const COLUMNS = [
  { id: "consumer", title: "Consumer", value: (row) => row.consumer_tag, show: (row) => html`<${Consumer} row=${row} />`, width: "minmax(70px, 2fr)" },
  { id: "queue", title: "Queue", value: (row) => row.queue.name, show: (row) => html`<a href=${toQueue(row)}>${row.queue.name}</a>`, width: "minmax(46px, 2fr)", phone: true },
  { id: "vhost", title: "Virtual host", value: (row) => row.queue.vhost, width: "minmax(60px, 1fr)", wide: true },
  { id: "user", title: "User", value: (row) => row.channel_details.user, width: "minmax(60px, 1fr)", wide: true },
  { id: "ages", title: "Ages", head: HEAD, about: "Unacknowledged deliveries by age", number: true, value: (row) => seconds(row.oldest_age), show: (row) => html`<${Heat} row=${row} />`, width: "minmax(120px, 5fr)", phone: true },
  { id: "prefetch", title: "Prefetch", number: true, value: (row) => row.prefetch_count, show: prefetchOf, width: "62px" },
  { id: "unacked", title: "Unacked", number: true, value: (row) => row.messages_unacknowledged, show: (row) => html`<${Unacked} row=${row} />`, width: "54px", phone: true },
  { id: "oldest", title: "Oldest", about: "At least so old; in seconds for the filter", number: true, value: (row) => seconds(row.oldest_age), show: (row) => age(row.oldest_age), width: "72px", phone: true },
  { id: "median", title: "Median", number: true, value: (row) => seconds(row.median_age), show: (row) => age(row.median_age), width: "78px", wide: true },
  { id: "p99", title: "99 %", about: "99 of 100 are no older", number: true, value: (row) => seconds(row.p99_age), show: (row) => age(row.p99_age), width: "78px", wide: true },
];

export function AckAges() {
  const found = useLoaded(WHERE);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) found.again(); }, EVERY);
    return () => clearInterval(timer);
  }, []);
  const page = found.value || { items: [], total_count: 0 };
  const rows = page.items.filter((row) => row.ack_required);
  const some = page.total_count > page.items.length && `The ${number(page.items.length)} of ${number(page.total_count)} consumers with the oldest deliveries.`;
  return html`<header><div><h1>Ack ages</h1><span class="soft">How long deliveries have not been acknowledged: at least so long, and up to 5 s longer. Each column is a range: up to 10 s, 30 s, and so on. ${some}</span></div></header>
    <${Failure} error=${found.error} again=${found.again} />
    <${DataTable} id="ack-ages" label="Ack ages" rows=${rows} columns=${COLUMNS} keyOf=${(row) => [row.queue.vhost, row.channel_details.name, row.consumer_tag].join("\u0000")} word="consumer"
      href=${toQueue} complete=${found.value !== undefined} defaultSort="-oldest" empty="No consumer acknowledges what it gets." />`;
}
