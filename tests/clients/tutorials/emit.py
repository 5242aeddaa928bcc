"""Publish/subscribe, routing and topics, the emitter: exchange, type, then pairs of a routing key and a body."""

import sys

from common import connect

exchange, kind, *pairs = sys.argv[1:]
connection = connect()
channel = connection.channel()
channel.exchange_declare(exchange=exchange, exchange_type=kind)
for key, body in zip(pairs[::2], pairs[1::2], strict=True):
    channel.basic_publish(exchange=exchange, routing_key=key, body=body)
connection.close()
