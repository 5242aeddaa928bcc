"""Commands for the objects of a running broker, Harebell or RabbitMQ, over its HTTP API: one noun a file."""
