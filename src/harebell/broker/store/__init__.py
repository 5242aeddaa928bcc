"""What is on disk: segment logs, and the group commit that makes them durable."""
