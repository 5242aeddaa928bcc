"""The table of endpoints: each line of the API once.

The reference (docs/reference/http-api.md), the OpenAPI description and the index at /api/ are made from it, and the tests
walk it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harebell.admin.http.endpoint import Endpoint, Needs
from harebell.admin.resources import (
    bindings,
    connections,
    definitions,
    exchanges,
    identity,
    messages,
    node,
    permissions,
    queues,
    rules,
    shovels,
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
    Endpoint("GET", "/overview", M, node.show_overview, "Totals, rates, listeners; of what the user sees", query=f"{RANGES}, {OBJECT}"),
    Endpoint("GET", "/cluster-name", M, node.cluster_name, "The name of the cluster"),
    Endpoint("PUT", "/cluster-name", A, node.put_cluster_name, "Set it", reads="name"),
    Endpoint("GET", "/nodes", MONITORING, node.nodes, "The node, in a list", query="node_stats_age, node_stats_incr"),
    Endpoint("GET", "/nodes/{node}", MONITORING, node.show_node, "The node", query=f"node_stats_age, node_stats_incr, {OBJECT}"),
    Endpoint("GET", "/nodes/{node}/memory", MONITORING, node.memory, "Its memory by part, in bytes"),
    Endpoint("GET", "/nodes/{node}/memory/relative", MONITORING, node.memory, "Its memory by part, in percent"),
    Endpoint("GET", "/extensions", M, node.extensions, "Extensions of RabbitMQ's console: none"),
    Endpoint("GET", "/feature-flags", M, node.feature_flags, "RabbitMQ's feature flags whose features are here"),
    Endpoint("PUT", "/feature-flags/{name}/enable", A, node.enable_feature_flag, "They are enabled already", reads="{}"),
    Endpoint("GET", "/deprecated-features", M, node.deprecated_features, "Deprecated features: none"),
    Endpoint("GET", "/deprecated-features/used", M, node.deprecated_features, "Those in use: none"),
    Endpoint("GET", "/version", NOTHING, node.version, "The version of RabbitMQ whose API this is"),
    Endpoint("DELETE", "/reset", A, node.reset, "Forget the history of all figures"),
    Endpoint("DELETE", "/reset/{node}", A, node.reset, "The same"),
    Endpoint("POST", "/rebalance/queues", A, node.rebalance, "Nothing: there is one node", reads="{}"),
)  # fmt: skip

HEALTH: Final = (
    Endpoint("GET", "/aliveness-test/{vhost}", VHOST, node.aliveness, "Declare a queue, publish, and get"),
    Endpoint("GET", "/health/checks/alarms", M, node.alarms, "Fails while there is an alarm"),
    Endpoint("GET", "/health/checks/local-alarms", M, node.alarms, "The same"),
    Endpoint("GET", "/health/checks/certificate-expiration/{within}/{unit}", M, node.certificate_expiration, "Fails when the certificate ends within so many days, weeks, months or years"),
    Endpoint("GET", "/health/checks/port-listener/{port}", M, node.port_listener, "Fails when nothing listens on the port"),
    Endpoint("GET", "/health/checks/protocol-listener/{protocol}", M, node.protocol_listener, "Fails when there is no listener for the protocol"),
    Endpoint("GET", "/health/checks/virtual-hosts", M, node.virtual_hosts, "All virtual hosts run"),
    Endpoint("GET", "/health/checks/node-is-mirror-sync-critical", M, node.healthy, "Holds: there are no mirrors"),
    Endpoint("GET", "/health/checks/node-is-quorum-critical", M, node.healthy, "Holds: there is one node"),
    Endpoint("GET", "/health/checks/reached-target-cluster-size", M, node.healthy, "Holds: there is one node"),
    Endpoint("GET", "/health/checks/metadata-store/initialized", M, node.healthy, "Holds once there is an answer"),
    Endpoint("GET", "/health/checks/metadata-store/initialized/with-data", M, node.healthy, "The same"),
    Endpoint("GET", "/health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}", M, node.healthy, "Holds: a queue needs no leader"),
    Endpoint("GET", "/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}", VHOST, node.healthy, "The same"),
    Endpoint("GET", "/health/checks/is-in-service", M, node.in_service, "Fails while the node is drained, and after its store failed"),
    Endpoint("GET", "/health/checks/ready-to-serve-clients", M, node.ready, "The same, and at the limit of connections"),
    Endpoint("GET", "/health/checks/below-node-connection-limit", M, node.below_limit, "Fails at the limit of connections"),
    Endpoint("GET", "/healthchecks/node", M, node.legacy_health_check, "RabbitMQ's old check of a node"),
    Endpoint("GET", "/healthchecks/node/{node}", M, node.legacy_health_check, "The same"),
)  # fmt: skip

IDENTITY: Final = (
    Endpoint("GET", "/whoami", M, identity.whoami, "The user that asks, with its tags"),
    Endpoint("GET", "/auth", NOTHING, identity.auth, "How to log in: by name and password"),
    Endpoint("POST", "/login", NOTHING, identity.login, "Begin a session of a browser: the answer sets a cookie", reads="username, password"),
    Endpoint("POST", "/logout", NOTHING, identity.logout, "End it", rabbitmq=False),
    Endpoint("GET", "/auth/attempts/{node}", MONITORING, identity.attempts, "Logins that succeeded and failed, by protocol"),
    Endpoint("DELETE", "/auth/attempts/{node}", A, identity.forget_attempts, "Count them anew"),
    Endpoint("GET", "/auth/hash_password/{password}", A, identity.hash_of, "The hash of a password, for definitions"),
)  # fmt: skip

DEFINITIONS: Final = (
    Endpoint("GET", "/definitions", A, definitions.export, "All definitions, with the hashes of passwords", query="download"),
    Endpoint("GET", "/all-configuration", A, definitions.export, "The same", query="download"),
    Endpoint("POST", "/definitions", A, definitions.import_, "Apply a file of definitions, whole or not at all", reads="definitions", body=definitions.LARGEST),
    Endpoint("POST", "/all-configuration", A, definitions.import_, "The same", reads="definitions", body=definitions.LARGEST),
    Endpoint("GET", "/definitions/{vhost}", A, definitions.export_vhost, "The definitions of a virtual host", query="download"),
    Endpoint("POST", "/definitions/{vhost}", A, definitions.import_vhost, "Apply a file to a virtual host", reads="definitions", body=definitions.LARGEST),
)  # fmt: skip

RULES: Final = (
    Endpoint("GET", "/parameters", POLICYMAKER, rules.parameters, "Parameters", query=LISTED),
    Endpoint("GET", "/parameters/{component}", POLICYMAKER, rules.parameters, "Those of a component", query=LISTED),
    Endpoint("GET", "/parameters/{component}/{vhost}", POLICIES, rules.parameters_of_vhost, "Those in a virtual host", query=LISTED),
    Endpoint("GET", "/parameters/{component}/{vhost}/{name}", POLICIES, rules.show_parameter, "One of them", query=OBJECT),
    Endpoint("PUT", "/parameters/{component}/{vhost}/{name}", POLICIES, rules.put_parameter, "Set it; limits are an administrator's", reads="value"),
    Endpoint("DELETE", "/parameters/{component}/{vhost}/{name}", POLICIES, rules.clear_parameter, "Clear it"),
    Endpoint("GET", "/global-parameters", POLICYMAKER, rules.globals_, "Global parameters", query=LISTED),
    Endpoint("GET", "/global-parameters/{name}", POLICYMAKER, rules.show_global, "One of them", query=OBJECT),
    Endpoint("PUT", "/global-parameters/{name}", POLICYMAKER, rules.put_global, "Set it", reads="value"),
    Endpoint("DELETE", "/global-parameters/{name}", POLICYMAKER, rules.clear_global, "Clear it"),
    Endpoint("GET", "/policies", M, rules.policies, "Policies", query=LISTED),
    Endpoint("GET", "/policies/{vhost}", VHOST, rules.policies_of, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/policies/{vhost}/{name}", POLICIES, rules.show_policy, "One of them", query=OBJECT),
    Endpoint("PUT", "/policies/{vhost}/{name}", POLICIES, rules.put_policy, "Set it", reads=POLICY_BODY),
    Endpoint("DELETE", "/policies/{vhost}/{name}", POLICIES, rules.clear_policy, "Clear it"),
    Endpoint("GET", "/operator-policies", M, rules.operator_policies, "Operator policies", query=LISTED),
    Endpoint("GET", "/operator-policies/{vhost}", VHOST, rules.operator_policies_of, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/operator-policies/{vhost}/{name}", A, rules.show_operator_policy, "One of them", query=OBJECT),
    Endpoint("PUT", "/operator-policies/{vhost}/{name}", A, rules.put_operator_policy, "Set it", reads=POLICY_BODY),
    Endpoint("DELETE", "/operator-policies/{vhost}/{name}", A, rules.clear_operator_policy, "Clear it"),
    Endpoint("GET", "/vhost-limits", M, vhosts.limits, "The limits of virtual hosts"),
    Endpoint("GET", "/vhost-limits/{vhost}", SEEN, vhosts.limits_of, "Those of one"),
    Endpoint("PUT", "/vhost-limits/{vhost}/{name}", A, vhosts.set_limit, "Set max-connections or max-queues", reads="value"),
    Endpoint("DELETE", "/vhost-limits/{vhost}/{name}", A, vhosts.clear_limit, "Clear it"),
    Endpoint("GET", "/user-limits", M, users.limits, "The limits of users"),
    Endpoint("GET", "/user-limits/{user}", M, users.limits_of, "Those of one"),
    Endpoint("PUT", "/user-limits/{user}/{name}", A, users.set_limit, "Set max-connections or max-channels", reads="value"),
    Endpoint("DELETE", "/user-limits/{user}/{name}", A, users.clear_limit, "Clear it"),
)  # fmt: skip

CLIENTS: Final = (
    Endpoint("GET", "/connections", M, connections.connections, "Connections: the user's own, or all for monitoring", query=CONNECTION_LIST),
    Endpoint("GET", "/connections/{connection}", M, connections.show_connection, "One of them", query=f"data_rates_age, data_rates_incr, {OBJECT}"),
    Endpoint("DELETE", "/connections/{connection}", M, connections.close, "Close it; of others for an administrator. The header X-Reason is told to the client"),
    Endpoint("GET", "/connections/{connection}/channels", M, connections.channels_of_connection, "Its channels, or sessions of AMQP 0-10", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/connections/username/{user}", M, connections.connections_of_user, "The connections of a user", query=CONNECTION_LIST),
    Endpoint("DELETE", "/connections/username/{user}", M, connections.close_of_user, "Close them; of others for an administrator"),
    Endpoint("GET", "/vhosts/{vhost}/connections", VHOST, connections.connections_of_vhost, "Connections to a virtual host", query=CONNECTION_LIST),
    Endpoint("GET", "/channels", M, connections.channels, "Channels: the user's own, or all for monitoring", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/channels/{channel}", M, connections.show_channel, "One of them, with its consumers", query=f"{RANGES}, {OBJECT}"),
    Endpoint("GET", "/vhosts/{vhost}/channels", VHOST, connections.channels_of_vhost, "Channels in a virtual host", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/consumers", M, connections.consumers, "Consumers in the virtual hosts that the user sees", query=LISTED),
    Endpoint("GET", "/consumers/{vhost}", VHOST, connections.consumers_of_vhost, "Those in a virtual host", query=LISTED),
    Endpoint("PUT", "/consumers/{vhost}/{channel}/{consumer}/prefetch", VHOST, connections.set_prefetch, "Change the prefetch of a consumer that consumes: the user's own, or any for an administrator", rabbitmq=False, reads="prefetch_count"),
)  # fmt: skip

TOPOLOGY: Final = (
    Endpoint("GET", "/exchanges", M, exchanges.list_all, "Exchanges", query=f"{LISTED}, msg_rates_age, msg_rates_incr"),
    Endpoint("GET", "/exchanges/{vhost}", VHOST, exchanges.list_of_vhost, "Those of a virtual host", query=f"{LISTED}, msg_rates_age, msg_rates_incr"),
    Endpoint("GET", "/exchanges/{vhost}/{exchange}", VHOST, exchanges.show, "One of them; the default exchange is amq.default", query=f"msg_rates_age, msg_rates_incr, {OBJECT}"),
    Endpoint("PUT", "/exchanges/{vhost}/{exchange}", VHOST, exchanges.declare, "Declare it", reads="type, durable, auto_delete, internal, arguments"),
    Endpoint("DELETE", "/exchanges/{vhost}/{exchange}", VHOST, exchanges.delete, "Delete it", query="if-unused"),
    Endpoint("POST", "/exchanges/{vhost}/{exchange}/publish", VHOST, messages.publish, "Publish a message; the answer says whether it was routed, once it is on the disk", reads="properties, routing_key, payload, payload_encoding", body=PUBLICATION),
    Endpoint("GET", "/exchanges/{vhost}/{exchange}/bindings/source", VHOST, bindings.list_of_source, "Bindings from it", query=LISTED),
    Endpoint("GET", "/exchanges/{vhost}/{exchange}/bindings/destination", VHOST, bindings.list_of_destination, "Bindings to it", query=LISTED),
    Endpoint("GET", "/queues", M, queues.list_all, "Queues", query=QUEUE_LIST),
    Endpoint("GET", "/queues/detailed", M, queues.list_all, "The same", query=QUEUE_LIST),
    Endpoint("GET", "/queues/{vhost}", VHOST, queues.list_of_vhost, "Those of a virtual host", query=QUEUE_LIST),
    Endpoint("GET", "/queues/{vhost}/{queue}", VHOST, queues.show, "One of them, with its consumers", query=f"{RANGES}, {OBJECT}"),
    Endpoint("PUT", "/queues/{vhost}/{queue}", VHOST, queues.declare, "Declare it", reads="durable, auto_delete, arguments"),
    Endpoint("PATCH", "/queues/{vhost}/{queue}", VHOST, queues.change, "Change arguments of a queue in place; null removes one", rabbitmq=False, reads="arguments"),
    Endpoint("DELETE", "/queues/{vhost}/{queue}", VHOST, queues.delete, "Delete it", query="if-empty, if-unused"),
    Endpoint("GET", "/queues/{vhost}/{queue}/bindings", VHOST, bindings.list_of_queue, "Bindings to it", query=LISTED),
    Endpoint("DELETE", "/queues/{vhost}/{queue}/contents", VHOST, queues.purge, "Drop its ready messages"),
    Endpoint("POST", "/queues/{vhost}/{queue}/get", VHOST, messages.get, "Get messages, and acknowledge them or give them back", reads="count, ackmode, encoding, truncate"),
    Endpoint("POST", "/queues/{vhost}/{queue}/actions", A, queues.actions, "Nothing: a queue has no mirrors", reads="action"),
    Endpoint("GET", "/bindings", M, bindings.list_all, "Bindings", query=LISTED),
    Endpoint("GET", "/bindings/{vhost}", VHOST, bindings.list_of_vhost, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/bindings/{vhost}/e/{source}/{kind}/{destination}", VHOST, bindings.list_between, "Bindings from an exchange to a queue (kind q) or an exchange (e)", query=LISTED),
    Endpoint("POST", "/bindings/{vhost}/e/{source}/{kind}/{destination}", VHOST, bindings.bind, "Bind; Location names the binding", reads="routing_key, arguments"),
    Endpoint("GET", "/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", VHOST, bindings.show, "One of them, by its properties_key", query=OBJECT),
    Endpoint("DELETE", "/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", VHOST, bindings.unbind, "Unbind"),
)  # fmt: skip

VHOSTS_AND_USERS: Final = (
    Endpoint("GET", "/vhosts", M, vhosts.list_all, "Virtual hosts", query=f"{LISTED}, {RANGES}"),
    Endpoint("GET", "/vhosts/{vhost}", A, vhosts.show, "One of them", query=f"{RANGES}, {OBJECT}"),
    Endpoint("PUT", "/vhosts/{vhost}", A, vhosts.put, "Create or change it; its creator gets all permissions", reads="description, tags, default_queue_type, tracing"),
    Endpoint("DELETE", "/vhosts/{vhost}", A, vhosts.delete, "Delete it with all that is in it"),
    Endpoint("POST", "/vhosts/{vhost}/start/{node}", A, vhosts.start, "Nothing: each virtual host runs", reads="{}"),
    Endpoint("GET", "/vhosts/{vhost}/permissions", A, permissions.list_of_vhost, "Its permissions", query=LISTED),
    Endpoint("GET", "/vhosts/{vhost}/topic-permissions", A, permissions.topic_list_of_vhost, "Its topic permissions", query=LISTED),
    Endpoint("GET", "/users", A, users.list_all, "Users, with the hashes of their passwords", query=LISTED),
    Endpoint("GET", "/users/without-permissions", A, users.list_without_permissions, "Those without permissions", query=LISTED),
    Endpoint("POST", "/users/bulk-delete", A, users.bulk_delete, "Delete several; unknown ones are passed over", reads="users"),
    Endpoint("GET", "/users/{user}", A, users.show, "One of them", query=OBJECT),
    Endpoint("PUT", "/users/{user}", A, users.put, "Create or change it", reads="tags, password or password_hash, hashing_algorithm"),
    Endpoint("DELETE", "/users/{user}", A, users.delete, "Delete it, and close its connections"),
    Endpoint("GET", "/users/{user}/permissions", A, permissions.list_of_user, "Its permissions", query=LISTED),
    Endpoint("GET", "/users/{user}/topic-permissions", A, permissions.topic_list_of_user, "Its topic permissions", query=LISTED),
    Endpoint("GET", "/permissions", A, permissions.list_all, "Permissions", query=LISTED),
    Endpoint("GET", "/permissions/{vhost}/{user}", A, permissions.show, "One of them", query=OBJECT),
    Endpoint("PUT", "/permissions/{vhost}/{user}", A, permissions.put, "Set it", reads="configure, write, read"),
    Endpoint("DELETE", "/permissions/{vhost}/{user}", A, permissions.clear, "Clear it"),
    Endpoint("GET", "/topic-permissions", A, permissions.topic_list_all, "Topic permissions", query=LISTED),
    Endpoint("GET", "/topic-permissions/{vhost}/{user}", A, permissions.show_topic, "Those of a user in a virtual host"),
    Endpoint("PUT", "/topic-permissions/{vhost}/{user}", A, permissions.put_topic, "Set one, for an exchange", reads="exchange, write, read"),
    Endpoint("DELETE", "/topic-permissions/{vhost}/{user}", A, permissions.clear_topic, "Clear them"),
    Endpoint("GET", "/topic-permissions/{vhost}/{user}/{exchange}", A, permissions.show_topic, "Those for an exchange"),
    Endpoint("DELETE", "/topic-permissions/{vhost}/{user}/{exchange}", A, permissions.clear_topic, "Clear them"),
)  # fmt: skip

SHOVELS: Final = (
    Endpoint("GET", "/shovels", MONITORING, shovels.list_all, "Shovels and their states", query=LISTED),
    Endpoint("GET", "/shovels/{vhost}", MONITORING, shovels.list_of_vhost, "Those of a virtual host", query=LISTED),
    Endpoint("GET", "/shovels/vhost/{vhost}/{name}", MONITORING, shovels.show, "One of them", query=OBJECT),
    Endpoint("DELETE", "/shovels/vhost/{vhost}/{name}", POLICIES, shovels.delete, "Clear its parameter, which ends it"),
    Endpoint("DELETE", "/shovels/vhost/{vhost}/{name}/restart", POLICIES, shovels.restart, "Start it again"),
)  # fmt: skip


def _below_api(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    return [each._replace(path=f"/api{each.path}") for each in endpoints]


API: Final = _below_api(
    (
        *NODE, *HEALTH, *IDENTITY, *DEFINITIONS, *RULES, *CLIENTS, *TOPOLOGY, *VHOSTS_AND_USERS, *SHOVELS,
    )
)  # fmt: skip
