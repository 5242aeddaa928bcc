"""Where the tutorials' programs connect: the URL in AMQP_URL. What they print is what the tests look at."""

import os

import pika


def connect():
    return pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))


def say(*words):
    print(*words, flush=True)
