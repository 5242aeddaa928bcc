"""The replayable source: stream queues, read by offset."""
