"""The `harebell` command: one file for each noun.

`server` has the commands for a broker of this machine, `administration` those for any broker, `spark` and `flights`
those that start Spark, `terminal` and `html` their output. Only this package parses arguments, configures logging and
draws on a terminal.
"""
