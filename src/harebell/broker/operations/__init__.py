"""What changes a node and what watches it: definitions, administration, alarms, events, firehose, statistics."""
