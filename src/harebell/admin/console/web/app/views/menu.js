// The menu: every view once, with who has it. Views are loaded with the page: together they are smaller than a picture.

import { html } from "../core/html.js";
import { Overview } from "./overview.js";
import { Queues } from "./queues.js";
import { Queue } from "./queue.js";
import { Exchange, Exchanges } from "./exchanges.js";
import { Channel, Channels, Connection, Connections, Consumers } from "./clients.js";
import { Vhost, Vhosts } from "./vhosts.js";
import { User, Users } from "./users.js";
import { Policies } from "./policies.js";
import { Shovels } from "./shovels.js";
import { Definitions } from "./definitions.js";
import { History } from "./history.js";
import { AckAges } from "./ack_ages.js";
import { Audit } from "./audit.js";
import { Changes } from "./changes.js";
import { Node } from "./node.js";
import { Wrong } from "./wrong.js";
import { Topology } from "./graph/topology.js";
import { RouteTester } from "./route.js";
import { Browse } from "./messages/browse.js";
import { DeadLetters } from "./messages/dead_letters.js";

export const MENU = [
  {
    title: "Watch",
    views: [
      { title: "Overview", to: ["overview"], shortcut: "o" },
      { title: "What is wrong", to: ["wrong"], shortcut: "w" },
      { title: "History", to: ["history"], shortcut: "h" },
      { title: "Changes", to: ["changes"] },
      { title: "Audit log", to: ["audit"], shortcut: "a" },
      { title: "Node", to: ["node"], tag: "monitoring" },
    ],
  },
  {
    title: "Messages",
    views: [
      { title: "Queues", to: ["queues"], count: "queues", shortcut: "q" },
      { title: "Streams", to: ["streams"] },
      { title: "Exchanges", to: ["exchanges"], count: "exchanges", shortcut: "e" },
      { title: "Topology", to: ["topology"], shortcut: "g" },
      { title: "Browse messages", to: ["browse"], shortcut: "b" },
      { title: "Dead letters", to: ["dead-letters"], shortcut: "d" },
      { title: "Route tester", to: ["route"], shortcut: "r" },
    ],
  },
  {
    title: "Clients",
    views: [
      { title: "Connections", to: ["connections"], count: "connections", shortcut: "c" },
      { title: "Channels", to: ["channels"], count: "channels" },
      { title: "Consumers", to: ["consumers"], count: "consumers" },
      { title: "Ack ages", to: ["ack-ages"] },
    ],
  },
  {
    title: "Rules",
    views: [
      { title: "Policies", to: ["policies"], shortcut: "p" },
      { title: "Shovels", to: ["shovels"], tag: "monitoring" },
      { title: "Virtual hosts", to: ["vhosts"] },
      { title: "Users", to: ["users"], tag: "administrator" },
      { title: "Definitions", to: ["definitions"], tag: "administrator" },
    ],
  },
];

const VIEWS = {
  overview: Overview, wrong: Wrong, history: History, changes: Changes, audit: Audit, node: Node,
  queues: [Queues, Queue], streams: [Queues, Queue], exchanges: [Exchanges, Exchange],
  route: RouteTester, topology: Topology, browse: Browse, "dead-letters": DeadLetters,
  connections: [Connections, Connection], channels: [Channels, Channel], consumers: Consumers,
  "ack-ages": AckAges,
  policies: Policies, shovels: Shovels, vhosts: [Vhosts, Vhost], users: [Users, User], definitions: Definitions,
};

function NotFound() {
  return html`<h1>There is no such view</h1><p>The address may be mistyped. <a href="#/overview">To the overview</a></p>`;
}

/** The view of a place: {component}. */
export function viewOf(parts) {
  const found = VIEWS[parts[0] || "overview"];
  if (!found) return { component: NotFound };
  return { component: Array.isArray(found) ? found[parts.length > 1 ? 1 : 0] : found };
}
