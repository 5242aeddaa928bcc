"""The handlers of requests, one kind of object a file."""
