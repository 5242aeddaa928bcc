"""Queues: the classic queue, the stream queue, and one behaviour a file. They know no dialect and no socket."""
