"""How commands reach the HTTP API of a broker, Harebell or RabbitMQ: where it is, requests, and errors in words."""
