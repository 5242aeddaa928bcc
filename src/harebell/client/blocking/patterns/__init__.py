"""What stands above a blocking connection's channels: the twins of `harebell.client.patterns`."""
