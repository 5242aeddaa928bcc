"""The spooled source: classic and quorum queues, drained to files before messages are acknowledged."""
