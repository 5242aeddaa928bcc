"""The types of exchanges: what each of them matches, and the indexes by which it finds that."""
