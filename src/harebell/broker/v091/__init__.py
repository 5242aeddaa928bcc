"""AMQP 0-9-1 on the broker's model: connections, channels, publishers, consumers, confirms, transactions."""
