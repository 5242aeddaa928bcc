"""A layer's way to the broker: its thread, and one connection after another."""
