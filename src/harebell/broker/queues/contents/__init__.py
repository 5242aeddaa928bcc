"""The forms in which a queue has its messages: plain, in a journal, or a backlog from whose middle they may leave."""
