"""The log of one stream queue: its folder, its segments and their records."""
