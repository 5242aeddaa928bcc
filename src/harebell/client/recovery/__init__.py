"""What outlasts a lost connection: the recorded topology, channels, subscriptions, and how each comes back."""
