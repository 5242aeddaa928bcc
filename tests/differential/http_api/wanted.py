"""What Harebell's HTTP API answers otherwise than RabbitMQ's, and why."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.fixtures.rabbitmq import VERSIONS


class Wanted(NamedTuple):
    """A difference, as `compare.differences` writes it, in steps whose names match; `why` is in the documentation.

    always  whether it is there in every run
    """

    why: str
    difference: str
    steps: str = ".*"
    versions: tuple[str, ...] = VERSIONS
    always: bool = True

    def allows(self, version: str, step: str, found: str) -> bool:
        matches = re.fullmatch(self.difference, found) and re.fullmatch(self.steps, step)
        return version in self.versions and bool(matches)


LISTED = r"(\[\]\.)?"  # in a list, or alone
OLD, NEW = VERSIONS[:1], VERSIONS[1:]

ERLANG: Final = "Facts of Erlang's machine, of RabbitMQ's own store and of its plug-ins are left out"
MORE: Final = "There are keys that RabbitMQ does not have"
BEFORE: Final = "A queue and a virtual host have all their keys from the start, not once statistics were gathered"
FACTS: Final = "Names, versions and types are this broker's"
MISSING: Final = "What does not exist is answered with 404"
LONG: Final = "A name or a binding key of more than 255 bytes, which AMQP could not carry, is refused with 400"
OPERATORS: Final = "An operator policy may have overflow and queue-version, as in RabbitMQ 4"
UNROUTED: Final = (
    "publish_out of the default exchange counts what a queue gets; RabbitMQ 3.10 counts all that is published"
)
LIMITS: Final = "Limits of virtual hosts have the columns that are asked for; RabbitMQ 4 always has all"
BODY: Final = "405 has a body"
LATER: Final = "Keys of newer versions are there too"
EARLIER: Final = "Keys that newer versions do not have any more are there too"
DEFINITIONS: Final = "Definitions have keys of their own, no cluster id, and no limits where all were removed"
ACTOR: Final = "Who declared an exchange is not recorded"
TYPE: Final = "A queue has the argument x-queue-type only if its declaration had it"
TWICE: Final = (
    "What is published and got is counted once in the totals; RabbitMQ sometimes counts what is done by HTTP, "
    "and beside it, more often there"
)
STREAMS: Final = "There are no extensions: the console asks for none"

WANTED: Final = (
    Wanted(
        ERLANG,
        rf"-{LISTED}(queues\[\]\.)?(garbage_collection|reductions(_details)?|backing_queue_status|recoverable_slaves|"
        r"storage_version|pending_raft_commands)",
    ),
    Wanted(ERLANG, rf"-{LISTED}(message_stats\.)?disk_(reads|writes)(_details)?"),
    Wanted(
        ERLANG,
        rf"-{LISTED}(gc_bytes_reclaimed|io_(read|write|seek|sync)_avg_time|io_(reopen|seek)_count|mnesia_\w+_tx_count|"
        r"metrics_gc_queue_length|msg_store_\w+_count|queue_index_\w+_count|ra_open_file_metrics|"
        r"release_series_support_status)(_details)?",
        r"GET /api/(overview|nodes.*)",
    ),
    Wanted(
        FACTS,
        rf"[-+]{LISTED}(applications|auth_mechanisms|config_files|enabled_plugins|exchange_types|log_files|contexts|"
        r"listeners|sample_retention_policies\.global)\[.+\]",
        r"GET /api/(overview|nodes.*)",
    ),
    Wanted(FACTS, r"[-+](listeners\[\]\.socket_opts\.\w+|(\[\]\.)?contexts\[\]\.\w+)", r"GET /api/(overview|nodes.*)"),
    Wanted(FACTS, r"[-+]memory\.\w+", r"GET /api/nodes/\{node\}/memory(/relative)?"),
    Wanted(FACTS, r"name '.*', ours '.*'", "GET /api/cluster-name"),
    Wanted(FACTS, r"object_totals.exchanges \d+, ours \d+"),
    Wanted(FACTS, r"\+\[(h )?amq\.system\b.*\]|\+\[/ amq\.system\b.*\]", r"GET /api/exchanges(/h)?"),
    Wanted(BEFORE, r"[-+](\[\]\.)?idle_since"),
    Wanted(
        BEFORE,
        r"\+(\[\]\.)?(consumer_(capacity|utilisation)|consumers|effective_policy_definition|exclusive_consumer_tag|"
        r"head_message_timestamp|memory|message(s|_bytes)\w*|(operator_)?policy|single_active_consumer_tag|state|"
        r"(recv|send)_oct(_details)?)",
        r"GET /api/(queues|vhosts).*",
    ),
    Wanted(BEFORE, r"\+(\[\]\.)?message_stats(\.\w+)?", r"GET /api/(queues|vhosts|exchanges).*"),
    Wanted(MORE, r"\+(\[\]\.)?(created_at|messages_delayed|messages_dlx)", r"GET /api/queues.*"),
    Wanted(MORE, r"\+(\[\]\.)?alternate_exchange", r"GET /api/exchanges.*"),
    Wanted(
        LATER, r"\+(cluster_tags|node_tags|default_queue_type|is_op_policy_updating_enabled)", "GET /api/overview", OLD
    ),
    Wanted(LATER, r"\+(\[\]\.)?being_drained", r"GET /api/nodes.*", OLD),
    Wanted(LATER, r"\+(\[\]\.)?(consumer_details\[\]\.)?consumer_timeout", versions=OLD),
    Wanted(LATER, r"\+(\[\]\.)?metadata\.default_queue_type", r"GET /api/vhosts.*", OLD),
    Wanted(LATER, r"(\[\]\.)?default_queue_type 'undefined', ours 'classic'", r"GET /api/vhosts.*", OLD),
    Wanted(LATER, r"\+is_internal_user", "GET /api/whoami", OLD),
    Wanted(ACTOR, r"-(\[\]\.)?user_who_performed_action", r"GET /api/exchanges.*"),
    Wanted(TYPE, r"-(queues)?(\[\]\.)?arguments\.x-queue-type", versions=NEW),
    Wanted(MISSING, r"status (400|401|500), ours 404", r".*/(none|nowhere)(/.*)?"),
    Wanted(FACTS, rf"{LISTED}auth_mechanisms\[\]\.enabled True, ours False", r"GET /api/nodes.*", NEW),
    Wanted(EARLIER, r"\+(\[\]\.)?global_prefetch_count", r"GET /api/(vhosts|channels|connections).*", NEW),
    Wanted(LONG, "status (201|204), ours (400|404)", ".* /api/(exchanges|bindings)/h/.*(n{256}|lq|k{256})"),
    Wanted(OPERATORS, r"status 40[04], ours 20[14]", "(PUT|DELETE) /api/operator-policies/h/op", OLD),
    Wanted(UNROUTED, r"(\[\]\.)?message_stats\.publish_out 8, ours 6", "GET /api/exchanges.*", OLD),
    Wanted(LIMITS, r"-\[\]\.value", r"GET /api/vhost-limits\?columns=vhost", NEW),
    Wanted(BODY, r"body b'', ours .*", "POST /api/overview"),
    Wanted(STREAMS, r"-\[\d+\]|-\[.*\]", "GET /api/extensions"),
    Wanted(DEFINITIONS, r"-global_parameters\[\w+\]", "GET /api/definitions"),
    Wanted(DEFINITIONS, r"-parameters\[.*vhost-limits limits\]", r"GET /api/definitions(/h)?"),
    Wanted(DEFINITIONS, r"[-+](users|vhosts|queues|parameters)\[\]\..*", r"GET /api/definitions(/h)?"),
    Wanted(DEFINITIONS, r"[-+]\w+", r"GET /api/definitions(/h)?"),
    Wanted(
        TWICE,
        r"(\[\]\.)?message_stats\.((publish|confirm) \d+, ours 8|deliver_get \d+, ours 6|get \d+, ours 3|"
        r"(return_unroutable|get_empty|deliver|redeliver) \d+, ours 2|get_no_ack \d+, ours 1)",
        r"GET /api/(overview|vhosts.*)",
        always=False,
    ),
)  # fmt: skip

LISTS: Final = "A list of what one may not see is empty or refused, and never another one's"
WRITES: Final = (
    "Shovels are ended and restarted by policymakers, not by monitoring; attempts are reset by administrators"
)
LOGIN: Final = "A login without its fields is a bad request"
OTHERS: Final = "(management|policymaker|monitoring)"

RIGHTS: Final = (
    Wanted("Everybody with a tag sees the feature flags", rf"{OTHERS} .*", "GET /api/feature-flags", OLD),
    Wanted(LOGIN, ".*", "POST /api/login"),
    Wanted(WRITES, "monitoring .*", r"DELETE /api/auth/attempts/\{node\}"),
    Wanted(WRITES, "(monitoring|policymaker) .*", r"DELETE /api/shovels/.*"),
    Wanted(LISTS, rf"{OTHERS} out", r"GET /api/consumers/\{vhost\}"),
    Wanted(LISTS, "(management|policymaker) .*", r"GET /api/connections/username/\{user\}", NEW),
    Wanted(MISSING, rf"{OTHERS} .*", r"DELETE /api/connections/username/\{user\}", OLD),
)
"""Who is refused by one broker alone: the users as "tag place"."""
