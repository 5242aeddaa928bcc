"""Runs tasks: a process, the processes of a command, and a worker inside the program's own process."""
