"""What the API tells of itself, made from its table: an index to read, and an OpenAPI description."""
