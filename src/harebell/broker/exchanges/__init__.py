"""Exchanges that hold messages: delayed ones, and recent-history ones."""
