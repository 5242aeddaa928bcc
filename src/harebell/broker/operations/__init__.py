"""Who changes the broker and who watches it: definitions, policies, limits, statistics, events."""
