"""Hello world and work queues, the receiver: takes one message at a time; "die" makes it go without an ack."""

import os
import sys

from common import connect, say

queue = sys.argv[1]
channel = connect().channel()
channel.queue_declare(queue=queue, durable=True)


def work(channel, method, properties, body):
    say("got", body.decode())
    if body == b"die":
        os._exit(9)
    if body == b"stop":
        channel.stop_consuming()
    channel.basic_ack(delivery_tag=method.delivery_tag)


channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue=queue, on_message_callback=work)
say("ready")
channel.start_consuming()
channel.connection.close()
