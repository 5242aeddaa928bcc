"""Objects of the broker in the form that they have in the JSON of RabbitMQ's HTTP API."""
