"""Jobs around queues: functions of DataFrames, a module each. `harebell spark` is their command.

Rules: a job takes a SparkSession and returns a record of what it did; it prints nothing and knows no terminal. A job
that may take long takes a `progress` callable that gets the number of rows done.
"""
