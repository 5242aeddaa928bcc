"""Messages on their way out and in: published, read into mailboxes, and those from layer to layer."""
