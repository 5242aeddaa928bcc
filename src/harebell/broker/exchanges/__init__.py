"""Exchanges that keep messages: delayed ones, and those that remember the last."""
