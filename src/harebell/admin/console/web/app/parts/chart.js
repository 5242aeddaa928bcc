// Charts over time. Drag to zoom, double-click to see all again; charts of one `group` zoom and point together.

import { html, useEffect, useRef } from "../core/html.js";
import { shade } from "../core/keys.js";
import { bytes, number, rate } from "../core/format.js";

const UNITS = {
  messages: (value) => number(Math.round(value)),
  rate: (value) => (value ? `${rate(value)}/s` : "0/s"),
  bytes,
  bytesRate: (value) => `${bytes(value)}/s`,
  number: (value) => number(Math.round(value)),
};
let library = null;

/**
 * A chart. `times` are seconds since 1970, ascending; `series` are {label, values}. `unit` is one of UNITS.
 */
export function Chart({ times, series, unit = "messages", group = null, height = 180, label }) {
  const box = useRef(null), chart = useRef(null);
  const theme = shade.value;
  const labels = series.map((each) => each.label).join("|");
  useEffect(() => {
    let gone = false, watch = null;
    library ||= import("../../vendor/uplot.mjs");
    library.then(({ default: UPlot }) => {
      if (gone || !box.current) return;
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(name).trim();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line"), width: 0.5 } };
      const options = {
        width: box.current.clientWidth || 300, height, legend: { live: true },
        cursor: group ? { sync: { key: group, setSeries: false } } : {},
        scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(0, low || 0), Math.max(high || 0, 1) * 1.05] } },
        axes: [{ ...axis, values: (_, splits, __, ___, step) => splits.map((at) => clock(at, step < 60)) }, { ...axis, size: 64, values: (_, splits) => splits.map(UNITS[unit]) }],
        series: [{ label: "at", value: (_, at) => (at ? clock(at, true) : "") },
          ...series.map((each, at) => ({
            label: each.label, stroke: colour(`--series-${at % 6 + 1}`), width: 1.6, points: { show: false },
            value: (_, value) => (value === null || value === undefined ? "" : UNITS[unit](value)),
          }))],
      };
      chart.current = new UPlot(options, dataOf(times, series), box.current);
      showLatest(chart.current);
      watch = new ResizeObserver(([entry]) => {
        const width = Math.floor(entry.contentRect.width);
        if (width > 50 && chart.current && width !== chart.current.width) chart.current.setSize({ width, height });
      });
      watch.observe(box.current);
    });
    return () => {
      gone = true;
      if (watch) watch.disconnect();
      if (chart.current) chart.current.destroy();
      chart.current = null;
    };
  }, [labels, unit, theme, height]);
  useEffect(() => {
    const it = chart.current;
    if (!it) return;
    const { min, max } = it.scales.x, all = it.data[0];
    const zoomed = all.length > 1 && (min > all[0] + 1 || max < all[all.length - 1] - 1);
    it.setData(dataOf(times, series), !zoomed);
    showLatest(it);
  });
  const latest = series.map((each) => `${each.label} ${UNITS[unit](each.values[each.values.length - 1] || 0)}`).join(", ");
  return html`<div class="chart" ref=${box} role="img" aria-label=${`${label}: now ${latest}`}></div>`;
}

function clock(at, seconds) {
  const text = new Date(at * 1000).toLocaleTimeString("en-GB");
  return seconds ? text : text.slice(0, 5);
}

/** Let the legend have the latest values, unless the pointer is at others. */
function showLatest(it) {
  const last = it.data[0].length - 1;
  if (last >= 0 && (it.cursor.left ?? -1) < 0) it.setLegend({ idx: last });
}

function dataOf(times, series) {
  return [times, ...series.map((each) => each.values)];
}

/** The samples of RabbitMQ's `..._details` objects as the data of a chart: {times, series}. */
export function samplesOf(stats, wanted, { rates = false } = {}) {
  const found = wanted.filter(([name]) => stats && stats[`${name}_details`] && stats[`${name}_details`].samples);
  if (!found.length) return { times: [], series: wanted.map(([, label]) => ({ label, values: [] })) };
  const samples = (name) => [...stats[`${name}_details`].samples].reverse();
  let times = samples(found[0][0]).map((each) => each.timestamp / 1000);
  const series = wanted.map(([name, label]) => {
    const values = stats && stats[`${name}_details`] && stats[`${name}_details`].samples ? samples(name).map((each) => each.sample) : times.map(() => 0);
    if (!rates) return { label, values };
    return { label, values: values.slice(1).map((value, at) => Math.max(0, value - values[at]) / Math.max(1, times[at + 1] - times[at])) };
  });
  if (rates) times = times.slice(1);
  return { times, series };
}

/** The last hour or less as a query for the API. */
export function ranges(age, step) {
  return ["lengths", "msg_rates", "data_rates", "node_stats"].map((name) => `${name}_age=${age}&${name}_incr=${step}`).join("&");
}
