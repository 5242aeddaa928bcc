"""The exchange types: how each of them matches messages with bindings, and the indexes for that."""
