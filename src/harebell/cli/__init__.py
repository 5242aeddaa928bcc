"""The `harebell` command, one file a noun.

Only here are arguments parsed, is logging configured, is a terminal drawn on.
"""
