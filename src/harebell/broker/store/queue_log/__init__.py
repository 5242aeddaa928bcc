"""The log of one durable queue: its journal, its segments and their records, and its recovery after a crash."""
