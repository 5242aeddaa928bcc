"""Sans-IO AMQP: bytes to frames, methods and messages, and back, for both roles.

Standard library only, and of that nothing that waits or talks: no asyncio, socket, ssl, threading, time.
"""
