"""`harebell spark`: the jobs of harebell.spark.jobs on the command line. A module for each command.

Rules: a command checks what it was given, opens a session with `running.job`, shows the job's progress, and prints what
came of it; it decides nothing that the job's function could decide.
"""
