"""The environment of a Spark program: a session, a Java, a package for executors, progress."""
