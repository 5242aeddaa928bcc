"""The output of the command: printable text, consoles, progress bars, and the file for the log records."""
