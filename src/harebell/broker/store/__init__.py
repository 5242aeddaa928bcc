"""The store: what makes a broker's messages and declarations durable.

`catalog` has the declarations, `queue_log` and `stream_log` the messages. They share the modules beside them: files,
their descriptors and syncs, and the group commit.
"""
