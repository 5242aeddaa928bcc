"""Publish/subscribe, routing and topics, the receiver: a queue of its own, bound with every key; ends at "stop"."""

import sys

from common import connect, say

exchange, kind, *keys = sys.argv[1:]
channel = connect().channel()
channel.exchange_declare(exchange=exchange, exchange_type=kind)
queue = channel.queue_declare(queue="", exclusive=True).method.queue
for key in keys:
    channel.queue_bind(exchange=exchange, queue=queue, routing_key=key)


def take(channel, method, properties, body):
    say(method.routing_key, body.decode())
    if body == b"stop":
        channel.stop_consuming()


channel.basic_consume(queue=queue, on_message_callback=take, auto_ack=True)
say("ready")
channel.start_consuming()
channel.connection.close()
