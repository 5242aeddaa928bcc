"""AMQP for Python, whole: a broker, a robust client, a channel layer and Spark pipelines."""

__version__ = "0.1.0"
