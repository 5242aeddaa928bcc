"""Queues: the classic queue, the stream queue, and a module for each behaviour. They know no dialect and no socket."""
