"""The broker killed, cut off and stalled while it works, and a history of all that was said to judge it by."""
