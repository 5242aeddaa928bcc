"""The store: logs of messages, the catalog, and the group commit that makes them durable."""
