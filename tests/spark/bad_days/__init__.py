"""The pipeline's bad days: what dies, breaks or is missing, and the count that must be right after it.

    python -m tests.spark.bad_days [--rabbitmq] [--only driver,broker] [--messages 3000]

`days` has the days, a function each; `driver` is the Spark program that they torment, `faults` what strikes inside its
workers, `brokers` the broker that can be killed, `evidence` what is counted in the end. `test_bad_days` runs a share of
it with the other tests.
"""
