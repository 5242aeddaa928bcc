"""What sessions stand on, and no program sees.

session       one session over all its transports: what it sent, what it waits for
deliveries    the messages that came to it; subscription, settlements
transport     one transport: the engine, the handshake
"""
