"""What a Spark program needs around it: a session, a Java, a package for executors, progress."""
