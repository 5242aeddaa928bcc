"""Turns bodies into columns, for `payload=text|json|avro`, after the rows of format("amqp") were read.

    options   what was asked for, a frozen record
    content   bodies out of their compression, in their charset
    columns   Spark's types: as msgspec's for JSON, and Python objects back into Arrow columns
    json      bodies -> objects, strictly by a type
    avro      the same for Avro; the only place that imports fastavro
    registry  which Avro schema has which id
    bad_rows  what becomes of the rows whose body cannot be read
    step      all of it: from a batch of the source's columns to a batch of the user's
    infer     a type out of a sample

Rules: nothing here reads a queue; both kinds of source use the same step after their own batches. A body that cannot
be read is never dropped in silence.
"""
