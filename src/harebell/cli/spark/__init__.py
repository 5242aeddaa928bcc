"""`harebell spark`: the jobs of harebell.spark.jobs on the command line, a module for each command.

Rules: a command checks its arguments, opens a session with `spark_job.run_job`, shows the job's progress, and prints
the result; it decides nothing that the job's function could decide.
"""
