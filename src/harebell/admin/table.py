"""The table of endpoints: each line of the API once.

The reference (docs/reference/http-api.md), the OpenAPI description and the index at /api/ are made from it, and the tests
walk it.
"""

from __future__ import annotations

from typing import Final

from harebell.admin.http.endpoint import Endpoint, Needs
from harebell.admin.resources import (
    ack_ages,
    audit,
    bindings,
    connections,
    definitions,
    delayed,
    events,
    exchanges,
    explain,
    identity,
    messages,
    metrics,
    moves,
    node,
    permissions,
    queues,
    redrive,
    refusals,
    rules,
    shovels,
    single_messages,
    users,
    vhosts,
)

__all__ = ["API"]

LISTED: Final = "page, page_size, name, use_regex, sort, sort_reverse, columns"
RANGES: Final = "lengths_age, lengths_incr, msg_rates_age, msg_rates_incr"
QUEUE_LIST: Final = f"{LISTED}, {RANGES}, disable_stats, enable_queue_totals"
CONNECTION_LIST: Final = f"{LISTED}, data_rates_age, data_rates_incr"
OBJECT: Final = "columns"
PUBLICATION: Final = 48 << 20  # bytes: the largest message in base64, and its properties
A, M = Needs.ADMINISTRATOR, Needs.MANAGEMENT
MONITORING, VHOST, SEEN, POLICIES, POLICYMAKER, NOTHING = (
    Needs.MONITORING, Needs.VHOST, Needs.SEEN, Needs.POLICIES, Needs.POLICYMAKER, Needs.NOTHING,
)  # fmt: skip
POLICY_BODY: Final = "pattern, definition, priority, apply-to"

NODE: Final = (
    Endpoint("GET", "/api/overview", M, node.show_overview, "Totals, rates, listeners; of what the user sees", query=f"{RANGES}, {OBJECT}"),
    Endpoint("GET", "/api/cluster-name", M, node.cluster_name, "The name of the cluster", query=OBJECT),
    Endpoint("PUT", "/api/cluster-name", A, node.put_cluster_name, "Set it", reads="name"),
    Endpoint("GET", "/api/nodes", MONITORING, node.nodes, "The node, in a list", query=f"node_stats_age, node_stats_incr, {OBJECT}"),
    Endpoint("GET", "/api/nodes/{node}", MONITORING, node.show_node, "The node", query=f"node_stats_age, node_stats_incr, {OBJECT}"),
    Endpoint("GET", "/api/nodes/{node}/memory", MONITORING, node.memory, "Its memory by part, in bytes", query=OBJECT),
    Endpoint("GET", "/api/nodes/{node}/memory/relative", MONITORING, node.memory, "Its memory by part, in percent", query=OBJECT),
    Endpoint("GET", "/api/extensions", M, node.extensions, "Extensions of RabbitMQ's console: none"),
    Endpoint("GET", "/api/feature-flags", M, node.feature_flags, "RabbitMQ's feature flags whose features are here", query=OBJECT),
    Endpoint("PUT", "/api/feature-flags/{name}/enable", A, node.enable_feature_flag, "They are enabled already", reads="{}"),
    Endpoint("GET", "/api/deprecated-features", M, node.deprecated_features, "Deprecated features: none"),
    Endpoint("GET", "/api/deprecated-features/used", M, node.deprecated_features, "Those in use: none"),
    Endpoint("GET", "/api/version", NOTHING, node.version, "The version of RabbitMQ whose API this is"),
    Endpoint("DELETE", "/api/reset", A, node.reset, "Forget the history of all figures"),
    Endpoint("DELETE", "/api/reset/{node}", A, node.reset, "The same"),
    Endpoint("POST", "/api/rebalance/queues", A, node.rebalance, "Nothing: there is one node", reads="{}"),
)  # fmt: skip

HEALTH: Final = (
    Endpoint("GET", "/api/aliveness-test/{vhost}", VHOST, node.aliveness, "Declare a queue, publish, and get"),
    Endpoint("GET", "/api/health/checks/alarms", M, node.alarms, "Fails while there is an alarm"),
    Endpoint("GET", "/api/health/checks/local-alarms", M, node.alarms, "The same"),
    Endpoint("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", M, node.certificate_expiration, "Fails when the certificate ends within so many days, weeks, months or years"),
    Endpoint("GET", "/api/health/checks/port-listener/{port}", M, node.port_listener, "Fails when nothing listens on the port"),
    Endpoint("GET", "/api/health/checks/protocol-listener/{protocol}", M, node.protocol_listener, "Fails when there is no listener for the protocol"),
    Endpoint("GET", "/api/health/checks/virtual-hosts", M, node.virtual_hosts, "All virtual hosts run"),
    Endpoint("GET", "/api/health/checks/node-is-mirror-sync-critical", M, node.healthy, "Holds: there are no mirrors"),
    Endpoint("GET", "/api/health/checks/node-is-quorum-critical", M, node.only_node, "Holds: there is one node"),
    Endpoint("GET", "/api/health/checks/reached-target-cluster-size", M, node.healthy, "Holds: there is one node"),
    Endpoint("GET", "/api/health/checks/metadata-store/initialized", M, node.healthy, "Holds once there is an answer"),
    Endpoint("GET", "/api/health/checks/metadata-store/initialized/with-data", M, node.healthy, "The same"),
    Endpoint("GET", "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}", M, node.healthy, "Holds: a queue needs no leader"),
    Endpoint("GET", "/api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}", VHOST, node.healthy, "The same"),
    Endpoint("GET", "/api/health/checks/is-in-service", M, node.in_service, "Fails while the node is drained, and after its store failed"),
    Endpoint("GET", "/api/health/checks/ready-to-serve-clients", M, node.ready, "The same, and at the limit of connections"),
    Endpoint("GET", "/api/health/checks/below-node-connection-limit", M, node.below_limit, "Fails at the limit of connections"),
    Endpoint("GET", "/api/healthchecks/node", M, node.legacy_health_check, "RabbitMQ's old check of a node"),
    Endpoint("GET", "/api/healthchecks/node/{node}", M, node.legacy_health_check, "The same"),
)  # fmt: skip

IDENTITY: Final = (
    Endpoint("GET", "/api/whoami", M, identity.whoami, "The user that asks, with its tags", query=OBJECT),
    Endpoint("GET", "/api/auth", NOTHING, identity.auth, "How to log in: by name and password"),
    Endpoint("POST", "/api/login", NOTHING, identity.login, "Begin a session of a browser: the answer sets a cookie", reads="username, password"),
    Endpoint("POST", "/api/logout", NOTHING, identity.logout, "End it", rabbitmq=False),
    Endpoint("GET", "/api/auth/attempts/{node}", MONITORING, identity.attempts, "Logins that succeeded and failed, by protocol", query=OBJECT),
    Endpoint("DELETE", "/api/auth/attempts/{node}", A, identity.forget_attempts, "Count them anew"),
    Endpoint("GET", "/api/auth/hash_password/{password}", A, identity.hash_of, "The hash of a password, for definitions"),
)  # fmt: skip

DEFINITIONS: Final = (
    Endpoint("GET", "/api/definitions", A, definitions.export, "All definitions, with the hashes of passwords", query="download"),
    Endpoint("GET", "/api/all-configuration", A, definitions.export, "The same", query="download"),
    Endpoint("POST", "/api/definitions", A, definitions.import_, "Apply a file of definitions, whole or not at all; with `plan`, ours, say only what that would do", query="plan", reads="definitions", body=definitions.LARGEST),
    Endpoint("POST", "/api/all-configuration", A, definitions.import_, "The same", reads="definitions", body=definitions.LARGEST),
    Endpoint("GET", "/api/definitions/{vhost}", A, definitions.export_vhost, "The definitions of a virtual host", query="download"),
    Endpoint("POST", "/api/definitions/{vhost}", A, definitions.import_vhost, "Apply a file to a virtual host; with `plan`, ours, say only what that would do", query="plan", reads="definitions", body=definitions.LARGEST),
)  # fmt: skip

RULES: Final = (
    Endpoint("GET", "/api/parameters", POLICYMAKER, rules.parameters, "Parameters", query=LISTED),
    Endpoint("GET", "/api/parameters/{component}", POLICYMAKER, rules.parameters, "Those of a component", query=LISTED),
    Endpoint("GET", "/api/parameters/{component}/{vhost}", POLICIES, rules.parameters_of_vhost, "Those in a virtual host", query=LISTED),
    Endpoint("GET", "/api/parameters/{component}/{vhost}/{name}", POLICIES, rules.show_parameter, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/parameters/{component}/{vhost}/{name}", POLICIES, rules.put_parameter, "Set it; limits are an administrator's", reads="value"),
    Endpoint("DELETE", "/api/parameters/{component}/{vhost}/{name}", POLICIES, rules.clear_parameter, "Clear it"),
    Endpoint("GET", "/api/global-parameters", POLICYMAKER, rules.globals_, "Global parameters", query=LISTED),
    Endpoint("GET", "/api/global-parameters/{name}", POLICYMAKER, rules.show_global, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/global-parameters/{name}", POLICYMAKER, rules.put_global, "Set it", reads="value"),
    Endpoint("DELETE", "/api/global-parameters/{name}", POLICYMAKER, rules.clear_global, "Clear it"),
    Endpoint("GET", "/api/policies", M, rules.policies, "Policies", query=LISTED),
    Endpoint("GET", "/api/policies/{vhost}", VHOST, rules.policies_of, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/api/policies/{vhost}/{name}", POLICIES, rules.show_policy, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/policies/{vhost}/{name}", POLICIES, rules.put_policy, "Set it", reads=POLICY_BODY),
    Endpoint("DELETE", "/api/policies/{vhost}/{name}", POLICIES, rules.clear_policy, "Clear it"),
    Endpoint("GET", "/api/operator-policies", M, rules.operator_policies, "Operator policies", query=LISTED),
    Endpoint("GET", "/api/operator-policies/{vhost}", VHOST, rules.operator_policies_of, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/api/operator-policies/{vhost}/{name}", A, rules.show_operator_policy, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/operator-policies/{vhost}/{name}", A, rules.put_operator_policy, "Set it", reads=POLICY_BODY),
    Endpoint("DELETE", "/api/operator-policies/{vhost}/{name}", A, rules.clear_operator_policy, "Clear it"),
    Endpoint("GET", "/api/vhost-limits", M, vhosts.limits, "The limits of virtual hosts", query=OBJECT),
    Endpoint("GET", "/api/vhost-limits/{vhost}", SEEN, vhosts.limits_of, "Those of one", query=OBJECT),
    Endpoint("PUT", "/api/vhost-limits/{vhost}/{name}", A, vhosts.set_limit, "Set max-connections or max-queues", reads="value"),
    Endpoint("DELETE", "/api/vhost-limits/{vhost}/{name}", A, vhosts.clear_limit, "Clear it"),
    Endpoint("GET", "/api/user-limits", M, users.limits, "The limits of users", query=OBJECT),
    Endpoint("GET", "/api/user-limits/{user}", M, users.limits_of, "Those of one", query=OBJECT),
    Endpoint("PUT", "/api/user-limits/{user}/{name}", A, users.set_limit, "Set max-connections or max-channels", reads="value"),
    Endpoint("DELETE", "/api/user-limits/{user}/{name}", A, users.clear_limit, "Clear it"),
)  # fmt: skip

CLIENTS: Final = (
    Endpoint("GET", "/api/connections", M, connections.connections, "Connections: the user's own, or all for monitoring", query=CONNECTION_LIST),
    Endpoint("GET", "/api/connections/{connection}", M, connections.show_connection, "One of them", query=f"data_rates_age, data_rates_incr, {OBJECT}"),
    Endpoint("DELETE", "/api/connections/{connection}", M, connections.close, "Close it; of others for an administrator. The header X-Reason is told to the client"),
    Endpoint("GET", "/api/connections/{connection}/channels", M, connections.channels_of_connection, "Its channels, or sessions of AMQP 0-10", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/api/connections/username/{user}", M, connections.connections_of_user, "The connections of a user", query=CONNECTION_LIST),
    Endpoint("DELETE", "/api/connections/username/{user}", M, connections.close_of_user, "Close them; of others for an administrator"),
    Endpoint("GET", "/api/vhosts/{vhost}/connections", VHOST, connections.connections_of_vhost, "Connections to a virtual host", query=CONNECTION_LIST),
    Endpoint("GET", "/api/channels", M, connections.channels, "Channels: the user's own, or all for monitoring", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/api/channels/{channel}", M, connections.show_channel, "One of them, with its consumers", query=f"{RANGES}, {OBJECT}"),
    Endpoint("GET", "/api/vhosts/{vhost}/channels", VHOST, connections.channels_of_vhost, "Channels in a virtual host", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/api/consumers", M, connections.consumers, "Consumers in the virtual hosts that the user sees", query=LISTED),
    Endpoint("GET", "/api/consumers/{vhost}", VHOST, connections.consumers_of_vhost, "Those in a virtual host", query=LISTED),
    Endpoint("GET", "/api/ack-ages", M, ack_ages.list_all, "Consumers with the ages of their unacknowledged deliveries, the oldest first: oldest, percentiles, and counts by range of age", rabbitmq=False, query=LISTED),
    Endpoint("GET", "/api/ack-ages/{vhost}", VHOST, ack_ages.list_of_vhost, "Those in a virtual host", rabbitmq=False, query=LISTED),
    Endpoint("PUT", "/api/consumers/{vhost}/{channel}/{consumer}/prefetch", VHOST, connections.set_prefetch, "Change the prefetch of a consumer that consumes: the user's own, or any for an administrator", rabbitmq=False, reads="prefetch_count"),
)  # fmt: skip

TOPOLOGY: Final = (
    Endpoint("GET", "/api/exchanges", M, exchanges.list_all, "Exchanges", query=f"{LISTED}, msg_rates_age, msg_rates_incr"),
    Endpoint("GET", "/api/exchanges/{vhost}", VHOST, exchanges.list_of_vhost, "Those of a virtual host", query=f"{LISTED}, msg_rates_age, msg_rates_incr"),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}", VHOST, exchanges.show, "One of them; the default exchange is amq.default", query=f"msg_rates_age, msg_rates_incr, {OBJECT}"),
    Endpoint("PUT", "/api/exchanges/{vhost}/{exchange}", VHOST, exchanges.declare, "Declare it", reads="type, durable, auto_delete, internal, arguments"),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{exchange}", VHOST, exchanges.delete, "Delete it", query="if-unused"),
    Endpoint("POST", "/api/exchanges/{vhost}/{exchange}/publish", VHOST, messages.publish, "Publish a message; the answer says whether it was routed, once it is on the disk", reads="properties, routing_key, payload, payload_encoding", body=PUBLICATION),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/bindings/source", VHOST, bindings.list_of_source, "Bindings from it", query=LISTED),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/bindings/destination", VHOST, bindings.list_of_destination, "Bindings to it", query=LISTED),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/explain", VHOST, explain.explain, "Where a message with this key and these properties would go, and why; headers and properties are JSON objects", rabbitmq=False, query="routing_key, headers, properties, payload, misses, user"),
    Endpoint("GET", "/api/exchanges/{vhost}/{exchange}/delayed", VHOST, delayed.list_of_exchange, "The messages that a delayed exchange holds back, the next one first", rabbitmq=False, query=LISTED),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/{number}", VHOST, delayed.revoke_one, "Drop one of them", rabbitmq=False),
    Endpoint("DELETE", "/api/exchanges/{vhost}/{exchange}/delayed/ids/{id}", VHOST, delayed.revoke, "Drop those with the id (x-delay-id, or else message_id)", rabbitmq=False),
    Endpoint("GET", "/api/queues", M, queues.list_all, "Queues", query=QUEUE_LIST),
    Endpoint("GET", "/api/queues/detailed", M, queues.list_all, "The same", query=QUEUE_LIST),
    Endpoint("GET", "/api/queues/{vhost}", VHOST, queues.list_of_vhost, "Those of a virtual host", query=QUEUE_LIST),
    Endpoint("GET", "/api/queues/{vhost}/{queue}", VHOST, queues.show, "One of them, with its consumers", query=f"{RANGES}, {OBJECT}"),
    Endpoint("PUT", "/api/queues/{vhost}/{queue}", VHOST, queues.declare, "Declare it", reads="durable, auto_delete, arguments"),
    Endpoint("PATCH", "/api/queues/{vhost}/{queue}", VHOST, queues.change, "Change arguments of a queue in place; null removes one", rabbitmq=False, reads="arguments"),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}", VHOST, queues.delete, "Delete it; with `keep`, ours, move its messages into a new queue that is there for so many seconds", query="if-empty, if-unused, keep"),
    Endpoint("GET", "/api/queues/{vhost}/{queue}/bindings", VHOST, bindings.list_of_queue, "Bindings to it", query=LISTED),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}/contents", VHOST, queues.purge, "Drop its ready messages; with `keep`, ours, move them into a new queue that is there for so many seconds", query="keep"),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/move", VHOST, moves.move_all, "Move its ready messages, as they are, to the end of another queue", rabbitmq=False, reads="destination, limit"),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/get", VHOST, messages.get, "Get messages, and acknowledge them or give them back", reads="count, ackmode, encoding, truncate"),
    Endpoint("GET", "/api/queues/{vhost}/{queue}/browse", VHOST, single_messages.browse, "Look at ready messages in their order; nothing is taken out or marked. `filter` is a selector", rabbitmq=False, query="offset, limit, filter, encoding, truncate"),
    Endpoint("DELETE", "/api/queues/{vhost}/{queue}/messages/{position}", VHOST, single_messages.drop, "Drop a ready message, as if it had been acknowledged", rabbitmq=False),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/messages/{position}/copy", VHOST, single_messages.copy, "Publish it to another queue too, as it is", rabbitmq=False, reads="destination"),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/messages/{position}/move", VHOST, single_messages.move, "Move it to the end of another queue, as it is", rabbitmq=False, reads="destination"),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/redrive", VHOST, redrive.redrive, "Move dead letters to the end of the queues in which they died last; a dry run says which would go where", rabbitmq=False, reads="limit, dry_run, reason, from"),
    Endpoint("POST", "/api/queues/{vhost}/{queue}/actions", A, queues.actions, "Nothing: a queue has no mirrors", reads="action"),
    Endpoint("GET", "/api/bindings", M, bindings.list_all, "Bindings", query=LISTED),
    Endpoint("GET", "/api/bindings/{vhost}", VHOST, bindings.list_of_vhost, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", VHOST, bindings.list_between, "Bindings from an exchange to a queue (kind q) or an exchange (e)", query=LISTED),
    Endpoint("POST", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}", VHOST, bindings.bind, "Bind; Location names the binding", reads="routing_key, arguments"),
    Endpoint("GET", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", VHOST, bindings.show, "One of them, by its properties_key", query=OBJECT),
    Endpoint("DELETE", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", VHOST, bindings.unbind, "Unbind"),
)  # fmt: skip

VHOSTS_AND_USERS: Final = (
    Endpoint("GET", "/api/vhosts", M, vhosts.list_all, "Virtual hosts", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/api/vhosts/{vhost}", A, vhosts.show, "One of them", query=f"{RANGES}, {OBJECT}"),
    Endpoint("PUT", "/api/vhosts/{vhost}", A, vhosts.put, "Create or change it; its creator gets all permissions", reads="description, tags, default_queue_type, tracing"),
    Endpoint("DELETE", "/api/vhosts/{vhost}", A, vhosts.delete, "Delete it with all that is in it"),
    Endpoint("POST", "/api/vhosts/{vhost}/start/{node}", A, vhosts.start, "Nothing: each virtual host runs", reads="{}"),
    Endpoint("GET", "/api/vhosts/{vhost}/permissions", A, permissions.list_of_vhost, "Its permissions", query=LISTED),
    Endpoint("GET", "/api/vhosts/{vhost}/topic-permissions", A, permissions.topic_list_of_vhost, "Its topic permissions", query=LISTED),
    Endpoint("GET", "/api/users", A, users.list_all, "Users, with the hashes of their passwords", query=LISTED),
    Endpoint("GET", "/api/users/without-permissions", A, users.list_without_permissions, "Those without permissions", query=LISTED),
    Endpoint("POST", "/api/users/bulk-delete", A, users.bulk_delete, "Delete several; unknown ones are passed over", reads="users"),
    Endpoint("GET", "/api/users/{user}", A, users.show, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/users/{user}", A, users.put, "Create or change it", reads="tags, password or password_hash, hashing_algorithm"),
    Endpoint("DELETE", "/api/users/{user}", A, users.delete, "Delete it, and close its connections"),
    Endpoint("GET", "/api/users/{user}/permissions", A, permissions.list_of_user, "Its permissions", query=LISTED),
    Endpoint("GET", "/api/users/{user}/topic-permissions", A, permissions.topic_list_of_user, "Its topic permissions", query=LISTED),
    Endpoint("GET", "/api/permissions", A, permissions.list_all, "Permissions", query=LISTED),
    Endpoint("GET", "/api/permissions/{vhost}/{user}", A, permissions.show, "One of them", query=OBJECT),
    Endpoint("PUT", "/api/permissions/{vhost}/{user}", A, permissions.put, "Set it", reads="configure, write, read"),
    Endpoint("DELETE", "/api/permissions/{vhost}/{user}", A, permissions.clear, "Clear it"),
    Endpoint("GET", "/api/topic-permissions", A, permissions.topic_list_all, "Topic permissions", query=LISTED),
    Endpoint("GET", "/api/topic-permissions/{vhost}/{user}", A, permissions.show_topic, "Those of a user in a virtual host", query=OBJECT),
    Endpoint("PUT", "/api/topic-permissions/{vhost}/{user}", A, permissions.put_topic, "Set one, for an exchange", reads="exchange, write, read"),
    Endpoint("DELETE", "/api/topic-permissions/{vhost}/{user}", A, permissions.clear_topic, "Clear them"),
    Endpoint("GET", "/api/topic-permissions/{vhost}/{user}/{exchange}", A, permissions.show_topic, "Those for an exchange", query=OBJECT),
    Endpoint("DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", A, permissions.clear_topic, "Clear them"),
)  # fmt: skip

SHOVELS: Final = (
    Endpoint("GET", "/api/shovels", MONITORING, shovels.list_all, "Shovels and their states", query=LISTED),
    Endpoint("GET", "/api/shovels/{vhost}", MONITORING, shovels.list_of_vhost, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/api/shovels/vhost/{vhost}/{name}", MONITORING, shovels.show, "One of them", query=OBJECT),
    Endpoint("DELETE", "/api/shovels/vhost/{vhost}/{name}", POLICIES, shovels.delete, "Clear its parameter, which ends it"),
    Endpoint("DELETE", "/api/shovels/vhost/{vhost}/{name}/restart", POLICIES, shovels.restart, "Start it again"),
)  # fmt: skip

WATCHING: Final = (
    Endpoint("GET", "/api/refusals", M, refusals.listed, "What permissions did not allow, latest first, and the smallest grant that would: an administrator sees all, others their own", rabbitmq=False, query=LISTED),
    Endpoint("GET", "/api/audit", M, audit.listed, "Who changed what, from where, newest first: an administrator sees all, others what is of their virtual hosts", rabbitmq=False, query=f"user, vhost, kind, act, outcome, since, until, {LISTED}"),
    Endpoint("GET", "/api/events", M, events.stream, "Server-sent events without an end: rows of objects with their rates, changes, and acts of the audit log", rabbitmq=False, query="topics", listens=True),
)  # fmt: skip
METRICS: Final = (
    Endpoint("GET", "/metrics", MONITORING, metrics.aggregated, "Metrics for Prometheus: the sums of all objects"),
    Endpoint("GET", "/metrics/per-object", MONITORING, metrics.of_objects, "A sample for each queue, connection and channel"),
    Endpoint("GET", "/metrics/detailed", MONITORING, metrics.chosen, "The families that are asked for, of the queues whose names match", query="family, vhost, queue"),
)  # fmt: skip


API: Final = (
    *NODE, *HEALTH, *IDENTITY, *DEFINITIONS, *RULES, *CLIENTS, *TOPOLOGY, *VHOSTS_AND_USERS, *SHOVELS, *METRICS, *WATCHING,
)  # fmt: skip
