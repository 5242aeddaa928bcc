"""Sans-IO AMQP: bytes to frames, methods and messages, and back, for both roles.

The package imports the standard library only, without asyncio, socket, ssl, threading and time.
"""
