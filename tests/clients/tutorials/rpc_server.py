"""RPC, the server: answers with the square of a number, to the address and with the id that came with it."""

import sys

import pika
from common import connect, say

queue = sys.argv[1]
channel = connect().channel()
channel.queue_declare(queue=queue)


def answer(channel, method, properties, body):
    reply = pika.BasicProperties(correlation_id=properties.correlation_id)
    channel.basic_publish(exchange="", routing_key=properties.reply_to, body=str(int(body) ** 2), properties=reply)
    channel.basic_ack(delivery_tag=method.delivery_tag)
    if body == b"0":
        channel.stop_consuming()


channel.basic_qos(prefetch_count=1)
channel.basic_consume(queue=queue, on_message_callback=answer)
say("ready")
channel.start_consuming()
channel.connection.close()
