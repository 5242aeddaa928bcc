"""What lives as long as one transport, without I/O: handshake, requests, what is unconfirmed or unacknowledged."""
