"""Tables of figures: the name without its prefix, RabbitMQ's text about it, and where it is. A counter ends with _total."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

__all__ = [
    "CHANNEL", "CHANNEL_LEFT", "CHANNEL_PUBLISHED", "CONNECTION", "CONNECTION_COARSE", "GLOBAL_LEFT", "GLOBAL_PUBLISHED", "LOGINS",
    "QUEUE", "QUEUE_COARSE", "QUEUE_CONSUMERS", "Row",
]  # fmt: skip

Row: TypeAlias = tuple[str, str, Callable[[Any], float]]

QUEUE_COARSE: Final[tuple[Row, ...]] = (
    ("queue_messages_ready", "Messages ready to be delivered to consumers", lambda it: it.ready),
    ("queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", lambda it: it.unacked),
    (
        "queue_messages",
        "Sum of ready and unacknowledged messages - total queue depth",
        lambda it: it.ready + it.unacked,
    ),
)
QUEUE_CONSUMERS: Final[tuple[Row, ...]] = (
    ("queue_consumers", "Consumers on a queue", lambda it: it.consumers),
)  # fmt: skip
QUEUE: Final[tuple[Row, ...]] = (
    ("queue_messages_published_total", "Total number of messages published to queues", lambda it: it.published),
    ("queue_messages_ram", "Ready and unacknowledged messages stored in memory", lambda it: it.in_memory + it.unacked),
    ("queue_messages_ready_ram", "Ready messages stored in memory", lambda it: it.in_memory),
    ("queue_messages_persistent", "Persistent messages", lambda it: it.persistent),
    ("queue_messages_bytes", "Size in bytes of ready and unacknowledged messages", lambda it: it.ready_bytes + it.unacked_bytes),
    ("queue_messages_ready_bytes", "Size in bytes of ready messages", lambda it: it.ready_bytes),
    ("queue_messages_unacked_bytes", "Size in bytes of all unacknowledged messages", lambda it: it.unacked_bytes),
    ("queue_messages_ram_bytes", "Size of ready and unacknowledged messages stored in memory", lambda it: it.in_memory_bytes + it.unacked_bytes),
    ("queue_messages_persistent_bytes", "Size in bytes of persistent messages", lambda it: it.persistent_bytes),
    ("queue_process_memory_bytes", "Memory in bytes used by the queue", lambda it: it.memory),
)  # fmt: skip
CONNECTION_COARSE: Final[tuple[Row, ...]] = (
    ("connection_incoming_bytes_total", "Total number of bytes received on a connection", lambda it: it.recv_oct),
    ("connection_outgoing_bytes_total", "Total number of bytes sent on a connection", lambda it: it.send_oct),
)  # fmt: skip
CONNECTION: Final[tuple[Row, ...]] = (
    ("connection_incoming_packets_total", "Total number of packets received on a connection", lambda it: it.recv_cnt),
    ("connection_outgoing_packets_total", "Total number of packets sent on a connection", lambda it: it.send_cnt),
    ("connection_pending_packets", "Bytes waiting to be sent on a connection", lambda it: it.unsent),
    ("connection_channels", "Channels on a connection", lambda it: len(it.channels)),
)  # fmt: skip
CHANNEL: Final[tuple[Row, ...]] = (
    ("channel_consumers", "Consumers on a channel", lambda it: len(it.consumers)),
    ("channel_messages_unacked", "Delivered but not yet acknowledged messages", lambda it: it.unacked_count),
    ("channel_messages_unconfirmed", "Published but not yet confirmed messages", lambda it: it.unconfirmed),
    ("channel_messages_uncommitted", "Messages received in a transaction but not yet committed", lambda it: it.uncommitted),
    ("channel_acks_uncommitted", "Message acknowledgements in a transaction not yet committed", lambda it: it.uncommitted_acks),
    ("consumer_prefetch", "Limit of unacknowledged messages for each consumer", lambda it: it.prefetch_count),
    ("channel_prefetch", "Total limit of unacknowledged messages for all consumers on a channel", lambda it: it.global_prefetch_count),
)  # fmt: skip
CHANNEL_PUBLISHED: Final[tuple[Row, ...]] = (
    ("channel_messages_published_total", "Total number of messages published into an exchange on a channel", lambda it: it.publish),
    ("channel_messages_confirmed_total", "Total number of messages published into an exchange and confirmed on the channel", lambda it: it.confirm),
    ("channel_messages_unroutable_returned_total", "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable", lambda it: it.return_unroutable),
    ("channel_messages_unroutable_dropped_total", "Total number of messages published as non-mandatory into an exchange and dropped as unroutable", lambda it: it.drop_unroutable),
)  # fmt: skip
CHANNEL_LEFT: Final[tuple[Row, ...]] = (
    ("channel_get_ack_total", "Total number of messages fetched with basic.get in manual acknowledgement mode", lambda it: it.get),
    ("channel_get_total", "Total number of messages fetched with basic.get in automatic acknowledgement mode", lambda it: it.get_no_ack),
    ("channel_get_empty_total", "Total number of times basic.get operations fetched no message", lambda it: it.get_empty),
    ("channel_messages_delivered_ack_total", "Total number of messages delivered to consumers in manual acknowledgement mode", lambda it: it.deliver),
    ("channel_messages_delivered_total", "Total number of messages delivered to consumers in automatic acknowledgement mode", lambda it: it.deliver_no_ack),
    ("channel_messages_redelivered_total", "Total number of messages redelivered to consumers", lambda it: it.redeliver),
    ("channel_messages_acked_total", "Total number of messages acknowledged by consumers", lambda it: it.ack),
)  # fmt: skip
GLOBAL_PUBLISHED: Final[tuple[Row, ...]] = (
    ("global_messages_received_total", "Total number of messages received from publishers", lambda it: it.publish),
    ("global_messages_confirmed_total", "Total number of messages confirmed to publishers", lambda it: it.confirm),
    ("global_messages_unroutable_dropped_total", "Total number of messages published as non-mandatory into an exchange and dropped as unroutable", lambda it: it.drop_unroutable),
    ("global_messages_unroutable_returned_total", "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable", lambda it: it.return_unroutable),
)  # fmt: skip
GLOBAL_LEFT: Final[tuple[Row, ...]] = (
    ("global_messages_delivered_total", "Total number of messages delivered to consumers", lambda it: it.deliver + it.deliver_no_ack + it.get + it.get_no_ack),
    ("global_messages_delivered_consume_manual_ack_total", "Total number of messages delivered to consumers using basic.consume with manual acknowledgment", lambda it: it.deliver),
    ("global_messages_delivered_consume_auto_ack_total", "Total number of messages delivered to consumers using basic.consume with automatic acknowledgment", lambda it: it.deliver_no_ack),
    ("global_messages_delivered_get_manual_ack_total", "Total number of messages delivered to consumers using basic.get with manual acknowledgment", lambda it: it.get),
    ("global_messages_delivered_get_auto_ack_total", "Total number of messages delivered to consumers using basic.get with automatic acknowledgment", lambda it: it.get_no_ack),
    ("global_messages_get_empty_total", "Total number of times basic.get operations fetched no message", lambda it: it.get_empty),
    ("global_messages_redelivered_total", "Total number of messages redelivered to consumers", lambda it: it.redeliver),
    ("global_messages_acknowledged_total", "Total number of messages acknowledged by consumers", lambda it: it.ack),
)  # fmt: skip
LOGINS: Final[tuple[Row, ...]] = (
    ("auth_attempts_total", "Total number of authorization attempts", lambda it: it.succeeded + it.failed),
    ("auth_attempts_succeeded_total", "Total number of successful authentication attempts", lambda it: it.succeeded),
    ("auth_attempts_failed_total", "Total number of failed authentication attempts", lambda it: it.failed),
)  # fmt: skip
