"""Publisher confirms: every publication is confirmed, and one that no queue takes comes back."""

import sys

import pika
from common import connect, say

queue = sys.argv[1]
connection = connect()
channel = connection.channel()
channel.queue_declare(queue=queue, exclusive=True)
channel.confirm_delivery()
for number in range(100):
    channel.basic_publish(exchange="", routing_key=queue, body=str(number), mandatory=True)
say(channel.queue_declare(queue=queue, passive=True).method.message_count)
try:
    channel.basic_publish(exchange="", routing_key=f"{queue}.none", body="x", mandatory=True)
except pika.exceptions.UnroutableError as error:
    say("returned", error.messages[0].method.reply_code)
connection.close()
