"""The `harebell` command: one file for each noun.

Only this package parses arguments, configures logging and draws on a terminal.
"""
