"""What consoles see change: rows of objects with their rates, and events, for streams that never end."""
