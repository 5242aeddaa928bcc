"""The jobs that people need around queues: functions of DataFrames, a module each. `harebell spark` is their command.

Rules: a job takes a SparkSession and says what it did in a record; it prints nothing and knows no terminal. Whatever
may take long takes a `progress` callable that gets the number of rows done.
"""
