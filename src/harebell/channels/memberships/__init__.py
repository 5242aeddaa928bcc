"""Who is in a group: joining and leaving, what ends a membership, and who asks."""
