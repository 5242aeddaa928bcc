// The node: memory by part, disk, files, syncs, plug-ins, and health checks.

import { html } from "../core/html.js";
import { getOrNull, has, path, request } from "../core/api.js";
import { useLoaded } from "../core/load.js";
import { useTopic } from "../core/live.js";
import { bytes, duration, number } from "../core/format.js";
import { ask } from "../parts/operation.js";
import { Facts, Failure, Panel, Tag } from "../parts/small.js";
import { PlainTable } from "../parts/table.js";

const PARTS = {
  binary: "bodies of messages", queue_procs: "queues and messages beside their bodies", connection_other: "connections and channels",
  connection_writers: "output that clients have not taken", mgmt_db: "history of figures", other_system: "the interpreter, code, libraries",
};
const CHECKS = { alarms: "No alarm", "virtual-hosts": "All virtual hosts run", "is-in-service": "It takes clients", "below-node-connection-limit": "Below the limit of connections" };

export function Node() {
  const live = useTopic("node").list[0];
  const name = live && live.name;
  const found = useLoaded(name ? path("nodes", name) : null, null, [name]);
  const memory = useLoaded(name ? path("nodes", name, "memory") : null, null, [name]);
  const checks = useLoaded(async () => Promise.all(Object.entries(CHECKS).map(async ([check, title]) => {
    try {
      return { title, ...(await request("GET", `/api/health/checks/${check}`)) };
    } catch (error) {
      return { title, status: "failed", reason: error.message };
    }
  })), /^alarm\./, [name]);
  const logins = useLoaded(name ? () => getOrNull(path("auth", "attempts", name)) : null, null, [name]);
  const it = found.value;
  return html`<header><div><h1>${name || "Node"}</h1></div>
      ${has("administrator") && html`<button onClick=${reset}>Forget the history…</button>`}</header>
    <${Failure} error=${found.error} again=${found.again} />
    <div class="columns">
      <${Panel} title="What it has and uses">${it && html`<${Facts} rows=${[
        ["Up for", duration(it.uptime / 1000)], ["Process", it.os_pid], ["Processors", it.processors], ["Data", html`<code>${it.db_dir}</code>`],
        ["Memory", live && `${bytes(live.mem_used)}; publishers are blocked above ${bytes(it.mem_limit)}`], ["Free disk space", live && `${bytes(live.disk_free)}; publishers are blocked below ${bytes(it.disk_free_limit)}`],
        ["Descriptors", live && `${number(live.fd_used)} of ${number(it.fd_total)}`], ["Connections", live && number(live.sockets_used)], ["Works that wait for their turn", live && number(live.run_queue)],
        ["Syncs of the disk", `${number(it.io_sync_count)}, ${it.io_sync_avg_time.toFixed(1)} ms each`], ["Read from disk", `${bytes(it.io_read_bytes)} in ${number(it.io_read_count)} reads`], ["Written to disk", `${bytes(it.io_write_bytes)} in ${number(it.io_write_count)} writes`],
      ]} />`}</${Panel}>
      <${Panel} title="Memory by part" actions=${html`<button onClick=${memory.again}>Measure again</button>`}>${memory.value && html`<${PlainTable} label="Memory by part" rows=${Object.entries(memory.value.memory).filter(([part]) => part in PARTS)} columns=${[
        { title: "Part", show: ([part]) => PARTS[part] }, { title: "Size", number: true, show: ([, size]) => bytes(size) }]} />`}</${Panel}>
      <${Panel} title="Health" actions=${html`<button onClick=${checks.again}>Check again</button>`}>${checks.value && html`<${PlainTable} label="Health" rows=${checks.value} columns=${[
        { title: "Check", value: (row) => row.title }, { title: "", show: (row) => html`<${Tag} kind=${row.status === "ok" ? "good" : "bad"}>${row.status === "ok" ? "holds" : row.reason}</${Tag}>` }]} />`}
        ${logins.value && html`<h3>Logins</h3><${PlainTable} label="Logins" rows=${logins.value} columns=${[{ title: "Protocol", value: (row) => row.protocol }, { title: "Succeeded", number: true, value: (row) => row.auth_attempts_succeeded }, { title: "Failed", number: true, value: (row) => row.auth_attempts_failed }]} />`}</${Panel}>
      <${Panel} title="Exchange types and logins">${it && html`<p>${it.exchange_types.map((each) => html`<${Tag} title=${each.description}>${each.name}</${Tag}> `)}</p><p>${it.auth_mechanisms.filter((each) => each.enabled).map((each) => html`<${Tag}>${each.name}</${Tag}> `)}</p>`}</${Panel}>
    </div>`;
}

function reset() {
  ask({
    title: "Forget the history", verb: "Forget", danger: true, about: "The samples of the last hour are forgotten, for everybody. Counts stay.",
    plan: () => ({ requests: [{ method: "DELETE", path: "/api/reset" }], done: "The history begins anew" }),
  });
}
