"""The operation of a node: definitions, administration, alarms, events, firehose, statistics."""
