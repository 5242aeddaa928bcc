"""Selectors in queues: which message a consumer gets that wants only some, and what it has looked at."""
