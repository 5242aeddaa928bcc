"""The client: asyncio (`connection`, `channel`), and the same without `await`, for threads (`blocking`).

From what programs call down to one transport; a module imports only what stands below it:

    connection_pool, connection   what a program opens; how to make everything else
    patterns                      producer, workers, reader, rpc, pools, retry, dead letters, codecs
    channel, consumer, publish_many, harness
    recovery                      what outlasts a lost connection: calls, topology, channels, subscriptions
    notifications, middleware     callbacks and hooks around calls and events
    confirms, statistics          what waits for confirms; counters
    transport                     asyncio: dialling, reading and writing, deadlines
    core                          one transport without I/O: handshake, channels, confirms, deliveries
    messages, settling, events, url, opening
    callbacks, seconds            what a program gives: its own functions, its timeouts
"""

import harebell.logs  # noqa: F401  log records are one line each
