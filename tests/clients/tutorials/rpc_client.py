"""RPC, the client: asks for every number in turn and waits for the answer with its id."""

import sys
import uuid

import pika
from common import connect, say

queue, *numbers = sys.argv[1:]
connection = connect()
channel = connection.channel()
callback_queue = channel.queue_declare(queue="", exclusive=True).method.queue
answers = {}


def take(channel, method, properties, body):
    answers[properties.correlation_id] = body


channel.basic_consume(queue=callback_queue, on_message_callback=take, auto_ack=True)
for number in numbers:
    correlation_id = str(uuid.uuid4())
    asked = pika.BasicProperties(reply_to=callback_queue, correlation_id=correlation_id)
    channel.basic_publish(exchange="", routing_key=queue, body=number, properties=asked)
    while correlation_id not in answers:
        connection.process_data_events(time_limit=None)
    say(number, answers[correlation_id].decode())
connection.close()
