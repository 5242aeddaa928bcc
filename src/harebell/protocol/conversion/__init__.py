"""Messages of one dialect as those of the other: their properties, and the values in tables and maps."""
