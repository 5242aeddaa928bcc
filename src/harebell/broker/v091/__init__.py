"""How AMQP 0-9-1 reaches the model: connections, channels, publishers, consumers, confirms, transactions."""
