"""Hello world and work queues, the sender: one persistent message for each argument behind the queue's name."""

import sys

import pika
from common import connect

queue, *bodies = sys.argv[1:]
connection = connect()
channel = connection.channel()
channel.queue_declare(queue=queue, durable=True)
persistent = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
for body in bodies:
    channel.basic_publish(exchange="", routing_key=queue, body=body, properties=persistent)
connection.close()
