"""How AMQP 0-10 reaches the model: connections, sessions that outlive them, and the conversion of messages."""
