"""Stream queues: readers that remember where they were, where that is stored, and super streams of several queues."""
