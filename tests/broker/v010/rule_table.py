"""Every rule and exception of the specification by its name: the test that has it, or why none has.

A value without a space is a test: the short name of its file (FILES) and its name without "test_". Others are reasons.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FILES", "NOT_IMPLEMENTED", "RULES", "TABLES"]

FILES: Final = {
    "connection": "tests/broker/v010/test_connection.py",
    "dtx": "tests/broker/v010/test_dtx.py",
    "fragments": "tests/broker/v010/test_fragments.py",
    "messages": "tests/broker/v010/test_messages.py",
    "publisher": "tests/broker/v010/test_publisher.py",
    "queue-arguments": "tests/broker/v010/test_queue_arguments.py",
    "rules": "tests/broker/v010/test_rules.py",
    "session": "tests/broker/v010/test_session.py",
    "subscription": "tests/broker/v010/test_subscription.py",
    "topology": "tests/broker/v010/test_topology.py",
    "transactions": "tests/broker/v010/test_transactions.py",
    "client-handshake": "tests/client/sessions/core/test_handshake.py",
    "exactly-once": "tests/client/sessions/test_exactly_once.py",
    "engine": "tests/protocol/v010/test_engine.py",
    "receiving": "tests/protocol/v010/test_receiving.py",
    "sending": "tests/protocol/v010/test_sending.py",
    "protocol-session": "tests/protocol/v010/test_session.py",
}

TABLES: Final = frozenset(
    {"subscription.refusals", "topology.refusals", "topology.what_is_allowed", "transactions.refusals"}
)
"""Tests whose rows have the names of the rules."""

NOT_IMPLEMENTED: Final = {
    "file": "the class is refused with 540: session.not_implemented",
    "stream": "the class is refused with 540: session.not_implemented",
}

_STATES: Final = "dtx.every_command_in_every_state"
_WHOLE: Final = "protocol-session.parts_of_commands_are_not_named"

RULES: Final[dict[str, dict[str, str]]] = {
    "connection.start": {
        "protocol-name": "connection.another_header",
        "client-support": "engine.a_server_of_another_version",
    },
    "connection.start.server-properties": {"required-fields": "connection.required_fields"},
    "connection.start.locales": {"required-support": "connection.handshake"},
    "connection.start-ok.client-properties": {"required-fields": "client-handshake.required_fields"},
    "connection.start-ok.mechanism": {
        "security": "client-handshake.mechanisms",
        "validity": "connection.refused_logins",
    },
    "connection.tune.max-frame-size": {"minimum": "engine.tuning_beyond_the_offer"},
    "connection.tune.heartbeat-max": {
        "permitted-range": "connection.handshake",
        "no-heartbeat-min": "client-handshake.tuning",
    },
    "connection.tune-ok.channel-max": {
        "upper-limit": "engine.tuning_beyond_the_offer",
        "available-channels": "engine.frames_that_lose_the_framing",
    },
    "connection.tune-ok.max-frame-size": {
        "minimum": "engine.tuning_beyond_the_offer",
        "upper-limit": "engine.tuning_beyond_the_offer",
        "max-frame-size": "engine.frames_that_lose_the_framing",
    },
    "connection.tune-ok.heartbeat": {
        "permitted-range": "client-handshake.tuning",
        "no-heartbeat-min": "client-handshake.tuning",
    },
    "connection.open.virtual-host": {
        "separation": "connection.separation_and_security",
        "security": "connection.separation_and_security",
    },
    "connection.open.insist": {"behavior": "connection.insist"},
    "connection.redirect": {"usage": "client-handshake.a_redirect_is_told"},
    "connection.close-ok": {"reporting": "connection.a_connection_that_ends_without_close_is_logged"},
    "session": {"attachment": "session.not_attached"},
    "session.attach": {
        "one-transport-per-session": "session.one_transport_per_session",
        "one-session-per-transport": "session.one_session_per_transport",
        "idempotence": "session.idempotence",
        "scoping": "session.scoping",
    },
    "session.request-timeout": {"maximum-granted-timeout": "session.maximum_granted_timeout"},
    "session.command-point": {
        "newly-attached-transports": "session.newly_attached_transports",
        "zero-offset": "engine.frames_that_lose_the_framing",
        "nonzero-offset": "session.nonzero_offset",
    },
    "session.expected": {
        "include-next-command": "receiving.every_command_is_executed_once",
        "commands-empty-means-new-session": "session.commands_empty_means_new_session",
        "no-overlaps": _WHOLE,
        "minimal-fragments": _WHOLE,
    },
    "session.confirmed": {
        "durability": "publisher.durable_transfers_complete_when_they_are_on_disk",
        "no-overlaps": _WHOLE,
        "minimal-fragments": _WHOLE,
    },
    "session.confirmed.commands": {"exclude-known-complete": "protocol-session.answers_to_flush"},
    "session.completed": {
        "known-completed-reply": "session.known_completed_reply",
        "delayed-reply": "protocol-session.completions_are_answered",
        "merged-reply": "protocol-session.completions_are_answered",
    },
    "session.completed.commands": {
        "completed-implies-confirmed": "sending.what_is_sent_again",
        "exclude-known-complete": "receiving.what_is_known_is_not_reported_again",
    },
    "session.known-completed": {"stateless": "protocol-session.completions_are_answered"},
    "session.known-completed.commands": {
        "known-completed-implies-known-confirmed": "protocol-session.answers_to_flush"
    },
    "session.gap": {
        "gap-confirmation-and-completion": "session.gap_confirmation_and_completion",
        "aborted-commands": "rules.aborted_commands",
        "completed-or-confirmed-commands": "receiving.a_gap_leaves_what_is_complete",
    },
    "message": {
        "persistent-message": "rules.what_outlives_a_restart",
        "no-persistent-message-discard": "queue-arguments.a_full_queue",
        "throttling": "publisher.an_alarm_holds_transfers_back",
        "non-persistent-message-overflow": "a permission that is not used: alarms hold publishers back before",
        "non-persistent-message-discard": "queue-arguments.a_ring_with_priorities_drops_the_lowest",
        "min-priority-levels": "queue-arguments.priorities_of_both_dialects",
        "priority-level-implementation": "rules.priority_levels",
        "priority-delivery": "rules.priority_delivery",
    },
    "message.delivery-properties.redelivered": {
        "implementation": "session.expiry_returns_what_was_held_as_redelivered",
        "hinting": "a rule for programs that receive: what they make of it is theirs",
    },
    "message.delivery-properties.ttl": {"ttl-decrement": "subscription.time_to_live_goes_down"},
    "message.message-properties.message-id": {
        "unique": "a rule for programs that publish: the broker names no messages",
        "immutable": "messages.the_original_bytes_are_handed_on",
    },
    "message.message-properties.user-id": {"authentication": "publisher.authentication"},
    "message.transfer": {"transactional-publish": "transactions.commit"},
    "message.transfer.destination": {
        "blank-destination": "publisher.blank_destination",
        "nonexistent-exchange": "publisher.nonexistent_exchange_ends_the_session_alone",
    },
    "message.accept": {"acquisition": "subscription.what_was_not_acquired_cannot_be_accepted"},
    "message.reject": {
        "alternate-exchange": "subscription.reject_goes_to_the_alternate_exchange",
        "acquisition": "subscription.what_was_not_acquired_cannot_be_accepted",
    },
    "message.release": {"ordering": "subscription.release_ordering"},
    "message.acquire": {"one-to-one": "subscription.acquire"},
    "message.resume.destination": {"destination-not-found": "fragments.destination_not_found"},
    "message.resume.resume-id": {"unknown-resume-id": "fragments.unknown_resume_id"},
    "message.subscribe": {
        "simultaneous-subscriptions": "rules.simultaneous_subscriptions",
        "default-flow-mode": "subscription.default_flow_mode",
        "queue-deletion": "subscription.queue_deletion_ends_the_sessions_of_subscribers",
        "queue-not-found": "subscription.refusals",
        "initial-credit": "subscription.initial_credit",
    },
    "message.subscribe.destination": {"unique-subscriber-destination": "subscription.refusals"},
    "message.subscribe.exclusive": {"in-use": "subscription.refusals"},
    "message.cancel": {"post-cancel-transfer-resolution": "rules.post_cancel_transfer_resolution"},
    "message.cancel.destination": {"subscription-not-found": "subscription.refusals"},
    "message.set-flow-mode": {
        "byte-accounting": "subscription.byte_accounting",
        "mode-switching": "subscription.mode_switching",
        "default-flow-mode": "subscription.default_flow_mode",
    },
    "tx": {"duplicate-tracking": "exactly-once.each_message_once_and_in_order"},
    "tx.select": {
        "exactly-once": "transactions.refusals",
        "no-dtx": "dtx.a_session_has_one_kind_of_transactions",
        "explicit-accepts": "allowed, for Qpid's: transactions.deliveries_without_acceptance_belong_to_no_transaction",
    },
    "tx.commit": {"select-required": "transactions.refusals"},
    "tx.rollback": {"select-required": "transactions.refusals"},
    "dtx": {"transactionality": "dtx.outcomes"},
    "dtx.start": {
        "illegal-state": "dtx.without_select",
        "already-known": _STATES,
        "join-and-resume": _STATES,
    },
    "dtx.start.xid": {"unknown-xid": _STATES},
    "dtx.start.join": {"unsupported": "it is supported: dtx.a_branch_of_two_sessions"},
    "dtx.end": {
        "illegal-state": "dtx.without_select",
        "suspend-and-fail": _STATES,
        "success": _STATES,
        "session-closed": "dtx.the_end_of_a_session_rolls_its_branches_back",
    },
    "dtx.end.xid": {"not-associated": _STATES},
    "dtx.end.fail": {"failure": _STATES},
    "dtx.end.suspend": {"resume": "dtx.two_branches_of_a_session"},
    "dtx.commit": {"illegal-state": _STATES},
    "dtx.commit.xid": {"unknown-xid": _STATES, "not-disassociated": _STATES},
    "dtx.commit.one-phase": {"one-phase": _STATES, "two-phase": _STATES},
    "dtx.forget": {"illegal-state": _STATES},
    "dtx.forget.xid": {"unknown-xid": _STATES, "not-disassociated": _STATES},
    "dtx.get-timeout.xid": {"unknown-xid": _STATES},
    "dtx.prepare": {
        "illegal-state": _STATES,
        "obligation-1": "dtx.a_power_cut_within_any_write",
        "obligation-2": "dtx.a_power_cut_within_any_write",
    },
    "dtx.prepare.xid": {"unknown-xid": _STATES, "not-disassociated": _STATES},
    "dtx.rollback": {"illegal-state": _STATES},
    "dtx.rollback.xid": {"unknown-xid": _STATES, "not-disassociated": _STATES},
    "dtx.set-timeout": {
        "effective": "dtx.a_timeout",
        "reset": "dtx.set_timeout_of_zero_is_the_default",
    },
    "dtx.set-timeout.xid": {"unknown-xid": _STATES},
    "exchange": {
        "required-types": "publisher.exchanges_of_every_type",
        "recommended-types": "publisher.exchanges_of_every_type",
        "required-instances": "topology.required_instances",
        "default-exchange": "topology.default_binding",
        "default-access": "topology.refusals",
        "extensions": "publisher.exchanges_of_every_type",
    },
    "exchange.declare": {"minimum": "rules.many_exchanges_queues_and_bindings"},
    "exchange.declare.exchange": {
        "reserved-names": "topology.refusals",
        "exchange-name-required": "topology.refusals",
    },
    "exchange.declare.type": {"typed": "topology.refusals", "exchange-type-not-found": "topology.refusals"},
    "exchange.declare.alternate-exchange": {
        "empty-name": "publisher.what_no_queue_takes",
        "pre-existing-exchange": "topology.refusals",
        "double-failure": "alternates are followed to the end in both dialects, none twice: rules.alternates_that_loop",
    },
    "exchange.declare.passive": {"not-found": "topology.refusals"},
    "exchange.declare.durable": {"support": "rules.what_outlives_a_restart", "sticky": "topology.what_is_allowed"},
    "exchange.declare.auto-delete": {"sticky": "topology.what_is_allowed"},
    "exchange.declare.arguments": {"unknown-argument": "topology.refusals"},
    "exchange.delete.exchange": {
        "exists": "topology.refusals",
        "exchange-name-required": "topology.refusals",
        "used-as-alternate": "topology.refusals",
    },
    "exchange.delete.if-unused": {"exchange-in-use": "topology.refusals"},
    "exchange.bind": {
        "duplicates": "topology.what_is_allowed",
        "durable-exchange": "rules.what_outlives_a_restart",
        "binding-count": "rules.many_exchanges_queues_and_bindings",
        "multiple-bindings": "rules.multiple_bindings",
    },
    "exchange.bind.queue": {"empty-queue": "topology.refusals", "queue-existence": "topology.refusals"},
    "exchange.bind.exchange": {
        "exchange-existence": "topology.refusals",
        "exchange-name-required": "topology.refusals",
    },
    "exchange.bind.arguments": {"unknown-argument": "a binding may have any: a headers exchange matches by them"},
    "exchange.unbind.queue": {"non-existent-queue": "topology.refusals"},
    "exchange.unbind.exchange": {
        "non-existent-exchange": "topology.refusals",
        "exchange-name-required": "topology.refusals",
    },
    "exchange.unbind.binding-key": {"non-existent-binding-key": "topology.refusals"},
    "queue": {"any-content": "messages.interoperation"},
    "queue.declare": {
        "default-binding": "topology.default_binding",
        "minimum-queues": "rules.many_exchanges_queues_and_bindings",
    },
    "queue.declare.queue": {"reserved-prefix": "topology.refusals"},
    "queue.declare.alternate-exchange": {
        "pre-existing-exchange": "topology.refusals",
        "unknown-exchange": "topology.refusals",
    },
    "queue.declare.passive": {"passive": "topology.refusals"},
    "queue.declare.durable": {
        "persistence": "rules.what_outlives_a_restart",
        "types": "rules.what_outlives_a_restart",
        "pre-existence": "topology.what_is_allowed",
    },
    "queue.declare.exclusive": {
        "types": "topology.exclusive_queues_belong_to_their_session",
        "in-use": "topology.exclusive_queues_belong_to_their_session",
    },
    "queue.declare.auto-delete": {"pre-existence": "topology.what_is_allowed"},
    "queue.declare.arguments": {"unknown-argument": "topology.refusals"},
    "queue.delete.queue": {"empty-name": "topology.refusals", "queue-exists": "topology.refusals"},
    "queue.delete.if-unused": {"if-unused-flag": "rules.if_unused_flag"},
    "queue.delete.if-empty": {"not-empty": "topology.refusals"},
    "queue.purge": {
        "empty": "rules.purge",
        "pending-messages": "rules.purge",
        "purge-recovery": "a permission that is not used: what is purged is gone",
    },
    "queue.purge.queue": {"empty-name": "topology.refusals", "queue-exists": "topology.refusals"},
}
